/* test_hyper_names.c - Tests that rules, oracle and kernel ABI name the same hyper-parameters.
 *
 * The three lists stand apart on purpose: the oracle shares no type with the rules, and the layout
 * of the ABI's struct is fixed.  A name that one of them lacks is printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/rule/rule.h"
#include "oracle/oracle.h"

enum { MOST = 64, LENGTH = 64 };

struct names {
    int n;
    char name[MOST][LENGTH];
};

static void add(struct names *s, const char *name, size_t length)
{
    assert_true(s->n < MOST && length < LENGTH);
    memcpy(s->name[s->n], name, length);
    s->name[s->n++][length] = '\0';
}

static int has(const struct names *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0)
            return 1;
    return 0;
}

/* Fails where one set has a name that the other lacks. */
static void same_names(const char *a_is, const struct names *a, const char *b_is,
                       const struct names *b)
{
    for (int i = 0; i < a->n; i++)
        if (!has(b, a->name[i]))
            fail_msg("%s has %s, which %s lacks", a_is, a->name[i], b_is);
    for (int i = 0; i < b->n; i++)
        if (!has(a, b->name[i]))
            fail_msg("%s has %s, which %s lacks", b_is, b->name[i], a_is);
}

static void of_rules(struct names *number, struct names *flag)
{
#define X(name, value, text) add(number, #name, strlen(#name));
    QM_HYPER_LIST(X)
#undef X
#define X(name, value, text) add(flag, #name, strlen(#name));
    QM_HYPER_FLAG_LIST(X)
#undef X
}

static void of_oracle(struct names *number, struct names *flag)
{
#define X(name) add(number, #name, strlen(#name));
    QM_ORACLE_HYPER_LIST(X)
#undef X
#define X(name) add(flag, #name, strlen(#name));
    QM_ORACLE_HYPER_FLAG_LIST(X)
#undef X
}

/* Adds the members of one declaration "TYPE a, b, ...;"; returns the text behind its semicolon. */
static const char *declaration(const char *text, const char *type, struct names *s)
{
    text += strspn(text, " \n");
    if (strncmp(text, type, strlen(type)) != 0)
        fail_msg("kernel_abi.h: the hyper-parameters' \"%s\" does not start with %.20s", type,
                 text);
    for (text += strlen(type); *text != ';'; text += strspn(text, ", \n")) {
        size_t length = strcspn(text += strspn(text, " \n"), ", \n;");
        assert_true(length > 0);
        add(s, text, length);
        text += length;
    }
    return text + 1;
}

/* The last two declarations of struct qm_kernel_args, from the header's text: C cannot list the
 * members of a struct. */
static void of_abi(struct names *number, struct names *flag)
{
    static char text[65536];
    FILE *f = fopen("core/abi/kernel_abi.h", "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    const char *at = strstr(text, "struct qm_kernel_args {");
    assert_non_null(at);
    at = strstr(at, "double lr");
    assert_non_null(at);
    at = declaration(declaration(at, "double", number), "int", flag);
    assert_int_equal(strncmp(at + strspn(at, " \n"), "};", 2), 0);
}

static void lists_agree(void **state)
{
    static struct names rule[2], oracle[2], abi[2];
    (void)state;
    of_rules(&rule[0], &rule[1]);
    of_oracle(&oracle[0], &oracle[1]);
    of_abi(&abi[0], &abi[1]);
    for (int is_flag = 0; is_flag < 2; is_flag++) {
        same_names("core/rule/rule.h", &rule[is_flag], "oracle/oracle.h", &oracle[is_flag]);
        same_names("core/rule/rule.h", &rule[is_flag], "core/abi/kernel_abi.h", &abi[is_flag]);
    }
    assert_true(rule[0].n > 20 && rule[1].n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_agree),
    };
    return cmocka_run_group_tests_name("names of hyper-parameters", tests, NULL, NULL);
}
