/* vectors_check.c - Checks that a golden file still holds everything that `gen` wrote into it. */
#include <stdlib.h>
#include <string.h>

#include "experiments/vectors/vectors_file.h"

/* ---- the description ----------------------------------------------------------------------- */

qm_status qm_vectors_file_case(const struct qm_vectors_file *in, size_t i,
                               struct qm_vectors_case *out)
{
    const char *name, *id;
    json_int_t steps;
    struct qm_vectors_case c = {.name = ""};
    json_t *from = json_array_get(json_object_get(in->root, "cases"), i);
    snprintf(c.name, sizeof c.name, "t%zu", i);
    if (json_unpack(from, "{s:s, s:s, s:I}", "name", &name, "id", &id, "steps", &steps) != 0)
        return qm_fail(QM_BAD_FILE, "%s: golden: case %s lacks name, id or steps", in->path,
                       c.name);
    if (strcmp(name, c.name) != 0)
        return qm_fail(QM_BAD_FILE, "%s: golden: case '%.24s' stands where case %s is missing",
                       in->path, name, c.name);
    if (steps < 1 || steps > QM_VECTORS_STEPS)
        return qm_fail(QM_BAD_FILE, "%s: golden: case %s has %lld steps, expected 1 to %d",
                       in->path, name, (long long)steps, QM_VECTORS_STEPS);
    c.steps = steps;
    if (qm_case_parse(id, &c.c) != QM_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", qm_message());
        return qm_fail(QM_BAD_FILE, "%s: golden: %s: %s", in->path, name, why);
    }
    *out = c;
    return QM_OK;
}

/* The text of a value, at most 80 characters of it. */
static void value_text(const json_t *v, char text[81])
{
    char *all = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    snprintf(text, 81, "%s", all ? all : "nothing");
    free(all);
}

static qm_status not_expected(const struct qm_vectors_file *in, const char *place,
                              const json_t *got, const json_t *want)
{
    char a[81], b[81];
    value_text(got, a);
    value_text(want, b);
    return qm_fail(QM_BAD_FILE, "%s: golden: %s is %s, expected %s", in->path, place, a, b);
}

/* Fails, naming the first member by which two values differ. */
static qm_status differs(const struct qm_vectors_file *in, const char *place, json_t *got,
                         json_t *want)
{
    const char *key;
    json_t *v;
    char inner[200];
    size_t n = json_array_size(want);
    if (json_is_object(got) && json_is_object(want)) {
        json_object_foreach (want, key, v) {
            snprintf(inner, sizeof inner, "%s.%s", place, key);
            if (!json_equal(json_object_get(got, key), v))
                return differs(in, inner, json_object_get(got, key), v);
        }
        json_object_foreach (got, key, v) {
            snprintf(inner, sizeof inner, "%s.%.48s", place, key);
            if (!json_object_get(want, key))
                return not_expected(in, inner, v, NULL);
        }
    }
    if (!json_is_array(got) || !json_is_array(want))
        return not_expected(in, place, got, want);
    if (json_array_size(got) != n)
        return qm_fail(QM_BAD_FILE, "%s: golden: %s has %zu entries, expected %zu", in->path, place,
                       json_array_size(got), n);
    for (size_t i = 0; i < n; i++) {
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        if (!json_equal(json_array_get(got, i), json_array_get(want, i)))
            return differs(in, inner, json_array_get(got, i), json_array_get(want, i));
    }
    return not_expected(in, place, got, want);
}

static qm_status check_case(const struct qm_vectors_file *in, const struct qm_subject *s, size_t i)
{
    struct qm_vectors_case c;
    QM_TRY(qm_vectors_file_case(in, i, &c));
    json_t *got = json_copy(json_array_get(json_object_get(in->root, "cases"), i));
    json_t *want = NULL;
    json_object_del(got, "inputs");
    qm_status st = qm_describe_case(&s->recipe, &c, qm_vectors_file_seed(in), &want);
    if (st == QM_OK && !json_equal(got, want))
        st = differs(in, c.name, got, want);
    json_decref(want);
    json_decref(got);
    return st;
}

/* Checks what the head says of the recipe. */
static qm_status check_head(const struct qm_vectors_file *in, const struct qm_subject *s)
{
    char param[24];
    json_t *want =
        json_pack("{s:s, s:s, s:s}", "rule", s->recipe.rule->name, "grad",
                  qm_dtype_name(s->recipe.grad), "param", qm_param_text(&s->recipe.param, param));
    const char *key;
    json_t *v;
    qm_status st = QM_OK;
    json_object_foreach (want, key, v)
        if (st == QM_OK && !json_equal(json_object_get(in->root, key), v))
            st = differs(in, key, json_object_get(in->root, key), v);
    json_decref(want);
    return st;
}

static qm_status check_cases(const struct qm_vectors_file *in, const struct qm_subject *s)
{
    json_t *cases = json_object_get(in->root, "cases");
    json_int_t n = -1, steps = -1, sum = 0;
    size_t size = json_array_size(cases);
    json_unpack(in->root, "{s:{s:I, s:I}}", "count", "cases", &n, "steps", &steps);
    for (size_t i = 0; i < size; i++) {
        if (i >= QM_VECTORS_CASES)
            return qm_fail(QM_BAD_FILE, "%s: golden: more than %d cases", in->path,
                           QM_VECTORS_CASES);
        QM_TRY(check_case(in, s, i));
        sum += json_integer_value(json_object_get(json_array_get(cases, i), "steps"));
    }
    if ((json_int_t)size != n)
        return qm_fail(QM_BAD_FILE,
                       "%s: golden: there are %zu cases, %lld were written; case t%zu%s", in->path,
                       size, (long long)n, (json_int_t)size < n ? size : (size_t)n,
                       (json_int_t)size < n ? " is missing" : " was added");
    if (sum != steps)
        return qm_fail(QM_BAD_FILE, "%s: golden: the cases have %lld steps, %lld were written",
                       in->path, (long long)sum, (long long)steps);
    return QM_OK;
}

static qm_status check_digest(const struct qm_vectors_file *in)
{
    char got[QM_HASH];
    const json_t *want = json_object_get(in->root, "digest");
    QM_TRY(qm_describe_digest(in->root, got));
    if (!json_is_string(want) || strcmp(got, json_string_value(want)) != 0)
        return qm_fail(QM_BAD_FILE, "%s: 'golden' was changed: its digest is %s, %.64s was written",
                       in->path, got, json_is_string(want) ? json_string_value(want) : "none");
    return QM_OK;
}

/* ---- arrays -------------------------------------------------------------------------------- */

/* Checks that array `name` is there and has this hash. */
static qm_status check_array(const struct qm_vectors_file *in, const char *name, const json_t *hash)
{
    enum { PIECE = 1 << 14 };
    int i;
    char got[QM_HASH], dims[128];
    float x[PIECE];
    struct qm_sha256 h;
    const struct qm_entry *e = qm_vectors_file_find(in, name, &i);
    if (!e)
        return qm_fail(QM_BAD_FILE, "%s: there is no array '%s', which was written", in->path,
                       name);
    if (e->numel > QM_VECTORS_NUMEL)
        return qm_fail(QM_BAD_FILE, "%s: '%s' is %lld elements, expected at most %d", in->path,
                       name, (long long)e->numel, QM_VECTORS_NUMEL);
    qm_array_hash_start(&h, e->dtype, &e->shape);
    for (int64_t at = 0; at < e->numel; at += PIECE) {
        int64_t n = e->numel - at < PIECE ? e->numel - at : PIECE;
        QM_TRY(qm_file_read(in->f, i, at, n, x));
        qm_array_hash_add(&h, x, n);
    }
    qm_sha256_hex(&h, got);
    if (!json_is_string(hash) || strcmp(got, json_string_value(hash)) != 0)
        return qm_fail(QM_BAD_FILE, "%s: '%s' (%s of %s) is not what was written", in->path, name,
                       qm_shape_print(&e->shape, dims, sizeof dims), qm_dtype_name(e->dtype));
    return QM_OK;
}

/* Checks the codebooks of the file, and that they are those of this program. */
static qm_status check_codebooks(const struct qm_vectors_file *in, const struct qm_subject *s)
{
    json_t *hashes = json_object_get(in->root, "codebooks");
    char name[QM_STATE_NAME], hash[QM_HASH];
    for (int i = 0; i < s->recipe.rule->n_slots; i++) {
        struct qm_tensor book;
        const char *slot = s->recipe.rule->slot[i];
        QM_TRY(qm_describe_codebook(s, i, &book));
        if (!book.data)
            continue;
        qm_array_hash(&book, hash);
        free(book.data);
        const json_t *want = json_object_get(hashes, slot);
        if (!json_is_string(want) || strcmp(json_string_value(want), hash) != 0)
            return qm_fail(QM_BAD_FILE, "%s: golden: codebooks.%s is not that of this program",
                           in->path, slot);
        snprintf(name, sizeof name, "codebook/%s", slot);
        QM_TRY(check_array(in, name, want));
    }
    return QM_OK;
}

/* Fails unless case `name` has a hash of the input `key`. */
static qm_status need_hash(const struct qm_vectors_file *in, const char *name, const json_t *inputs,
                           const char *key, const char *ending)
{
    char input[QM_STATE_NAME + 8];
    snprintf(input, sizeof input, "%s%s", key, ending);
    return json_object_get(inputs, input)
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "%s: golden: %s.inputs has no hash of '%s'", in->path, name,
                         input);
}

/* Checks that a case has the hash of every input that its description implies. */
static qm_status check_names(const struct qm_vectors_file *in, const struct qm_subject *s,
                             const json_t *c)
{
    json_t *inputs = json_object_get(c, "inputs"), *slot;
    const char *name = json_string_value(json_object_get(c, "name"));
    char key[QM_STATE_NAME];
    size_t i;
    QM_TRY(need_hash(in, name, inputs, "in/param", ""));
    if (qm_param_residual(&s->recipe.param))
        QM_TRY(need_hash(in, name, inputs, "in/residual", ""));
    json_array_foreach (json_object_get(c, "slots"), i, slot) {
        int bits = (int)json_integer_value(json_object_get(slot, "bits"));
        snprintf(key, sizeof key, "in/%.200s", json_string_value(json_object_get(slot, "name")));
        QM_TRY(need_hash(in, name, inputs, key, bits ? ".codes" : ""));
        QM_TRY(need_hash(in, name, inputs, key, bits ? ".scales" : ""));
    }
    for (json_int_t k = 1; k <= json_integer_value(json_object_get(c, "steps")); k++) {
        snprintf(key, sizeof key, "grad/%lld", (long long)k);
        QM_TRY(need_hash(in, name, inputs, key, ""));
    }
    return QM_OK;
}

static qm_status check_inputs(const struct qm_vectors_file *in, const struct qm_subject *s)
{
    json_t *cases = json_object_get(in->root, "cases"), *hash;
    char name[QM_STATE_NAME];
    const char *key;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *c = json_array_get(cases, i), *inputs = json_object_get(c, "inputs");
        QM_TRY(check_names(in, s, c));
        json_object_foreach (inputs, key, hash) {
            snprintf(name, sizeof name, "t%zu/%.200s", i, key);
            QM_TRY(check_array(in, name, hash));
        }
    }
    return QM_OK;
}

/* Reads a number without leading zeros up to `end`; -1: there is none. */
static int64_t number(const char **at, char end)
{
    char *stop;
    if (**at < '0' || **at > '9' || (**at == '0' && (*at)[1] >= '0' && (*at)[1] <= '9'))
        return -1;
    long long n = strtoll(*at, &stop, 10);
    if (*stop != end)
        return -1;
    *at = stop + (end != '\0');
    return n;
}

/* Whether an array belongs to a golden file: an input that was written, a result of a step that
 * there is (an answer: under the name of an input), or none of this format's names. */
static int is_known(const struct qm_vectors_file *in, const char *name)
{
    json_t *cases = json_object_get(in->root, "cases");
    if (strncmp(name, "codebook/", 9) == 0)
        return json_object_get(json_object_get(in->root, "codebooks"), name + 9) != NULL;
    if (*name != 't' || name[1] < '0' || name[1] > '9')
        return 1;
    const char *at = name + 1;
    int64_t i = number(&at, '/');
    json_t *c = i < 0 ? NULL : json_array_get(cases, (size_t)i);
    if (!c)
        return 0;
    if (json_object_get(json_object_get(c, "inputs"), at))
        return 1;
    if (strncmp(at, "want/", 5) != 0 && strncmp(at, "out/", 4) != 0)
        return 0;
    int is_answer = *at == 'o';
    at = strchr(at, '/') + 1;
    int64_t k = number(&at, '/');
    char input[QM_STATE_NAME];
    snprintf(input, sizeof input, "in/%.*s", (int)sizeof input - 4, at);
    return k >= 1 && k <= json_integer_value(json_object_get(c, "steps")) &&
           (!is_answer || json_object_get(json_object_get(c, "inputs"), input));
}

static qm_status check_foreign(const struct qm_vectors_file *in)
{
    const char *name;
    json_t *i;
    json_object_foreach (in->index, name, i) {
        (void)i;
        if (!is_known(in, name))
            return qm_fail(QM_BAD_FILE,
                           "%s: array '%.120s' is of no case, step or codebook that was written",
                           in->path, name);
    }
    return QM_OK;
}

qm_status qm_vectors_file_check(const struct qm_vectors_file *in, const struct qm_subject *s)
{
    QM_TRY(check_head(in, s));
    QM_TRY(check_cases(in, s));
    QM_TRY(check_digest(in));
    QM_TRY(check_codebooks(in, s));
    QM_TRY(check_inputs(in, s));
    return check_foreign(in);
}
