/* test_reorder_list.c - Tests that the texts for users state the list of allowed re-orderings.
 *
 * `qualm check --help` is made of the list; experiments/kernel/README.md and the ABI's header quote
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/order.h"

/* The file without marks of comments and code, every run of white space as one blank. */
static const char *plain_text(const char *path)
{
    static char text[1 << 17];
    size_t n = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot read %s", path);
    for (int c; (c = fgetc(f)) != EOF && n + 1 < sizeof text;) {
        int is_blank = c == ' ' || c == '\n' || c == '*';
        if (c != '`' && !(is_blank && n > 0 && text[n - 1] == ' '))
            text[n++] = (char)(is_blank ? ' ' : c);
    }
    text[n] = '\0';
    fclose(f);
    return text;
}

static void test_texts_state_the_list(void **state)
{
    static const char *const paths[] = {"experiments/kernel/README.md", "core/abi/kernel_abi.h"};
    static const char *const items[] = {
#define X(name, text) text,
        QM_REORDER_LIST(X)
#undef X
#define X(text) text,
            QM_REORDER_NOT_LIST(X)
#undef X
    };
    (void)state;
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        const char *text = plain_text(paths[k]);
        for (size_t i = 0; i < sizeof items / sizeof *items; i++)
            if (!strstr(text, items[i]))
                fail_msg("%s lacks \"%s\"", paths[k], items[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts_state_the_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
