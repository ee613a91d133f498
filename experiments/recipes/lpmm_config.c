/* lpmm_config.c - Reads lpmm's YAML configurations and translates them to recipes. */
#include "experiments/recipes/lpmm_config.h"

#include "core/base/name.h"
#include "experiments/foreign/text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { DEEPEST = 16, LONGEST_KEY = 128 };

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- words ----------------------------------------------------------------------------------- */

/* A word of lpmm and its translation into quantizer words. */
struct word {
    const char *source, *own;
};

static const struct word scales[] = {
    {"tensor", "tensor"}, {"dim0", "row"},    {"dim1", "col"},    {"dim01", "rowcol"},
    {"dim10", "colrow"},  {"group", "block"}, {"rank1", "rank1"}, {"rank1-group", "rank1block"},
    {"id", "id"},
};
static const struct word maps[] = {
    {"nonlinear", "de"}, {"nonlinear-nozero", "de0"}, {"power-1", "lin"}, {"power-2", "pow2"},
    {"power-3", "pow3"}, {"float-point", "fpx"},      {"linear", "lint"},
};
/* Search and round for the maps with a table; integer_round() translates for the integer map. */
static const struct word rounds[] = {
    {"real-nearest", "bisect/mid"},  {"real-sr", "bisect/stoch"},     {"nearest", "argmin/mid"},
    {"up", "bisect/ceil"},           {"down", "bisect/floor"},        {"sr", "bisect/stoch"},
    {"sr1", "bisect/stoch/least:1"}, {"sr2", "bisect/stoch/least:2"},
};

static const struct {
    const char *key;
    const struct word *word;
    int n;
} axes[] = {{"SCALE_TYPE", scales, COUNT(scales)},
            {"QUANT_TYPE", maps, COUNT(maps)},
            {"ROUND_TYPE", rounds, COUNT(rounds)}};

static const char *own_word(const struct word *table, int n, const char *source)
{
    for (int i = 0; i < n; i++)
        if (strcmp(table[i].source, source) == 0)
            return table[i].own;
    return "";
}

/* QM_NO_MATCH that names the nearest word, or the first one as an example. */
static qm_status unknown(const char *what, const char *word, const char *const *names, int n)
{
    const char *near = qm_name_nearest(word, names, n);
    return qm_fail(QM_NO_MATCH, "no %s '%.60s'%s%s%s", what, word,
                   near ? "; did you mean '" : ", expected for example '", near ? near : names[0],
                   near ? "'?" : "'");
}

qm_status qm_lpmm_state_set(struct qm_lpmm_state *s, const char *key, const char *word)
{
    const char **to[] = {&s->scale_type, &s->quant_type, &s->round_type};
    const char *names[16];
    for (int a = 0; a < COUNT(axes); a++) {
        if (strcmp(axes[a].key, key) != 0)
            continue;
        for (int i = 0; i < axes[a].n; i++)
            names[i] = axes[a].word[i].source;
        int i = qm_name_find(word, names, axes[a].n);
        if (i < 0)
            return unknown(key, word, names, axes[a].n);
        *to[a] = names[i];
        return QM_OK;
    }
    return qm_fail(QM_INTERNAL, "lpmm has no words for %s", key);
}

/* The integer map rounds stochastically by dithering, and its lower clamp counts integers, which
 * begin at -first, while `least` counts positions. */
static qm_status integer_round(const struct qm_lpmm_state *s, char *text, size_t size)
{
    int first = s->sign ? (1 << (s->bits - 1)) - 1 : 0;
    int least = strcmp(s->round_type, "sr1") == 0 ? 1 : strcmp(s->round_type, "sr2") == 0 ? 2 : 0;
    if (strstr(s->round_type, "nearest"))
        return qm_fail(QM_BAD_ARG, "lpmm refuses QUANT_TYPE linear with ROUND_TYPE %s",
                       s->round_type);
    if (least)
        snprintf(text, size, "arith/dither/least:%d", least + first);
    else
        snprintf(text, size, "arith/%s",
                 strstr(s->round_type, "sr")        ? "dither"
                 : strcmp(s->round_type, "up") == 0 ? "ceil"
                                                    : "floor");
    return QM_OK;
}

qm_status qm_lpmm_state_quantizer(const struct qm_lpmm_state *s, char *text)
{
    const char *norm = own_word(scales, COUNT(scales), s->scale_type);
    const char *map = own_word(maps, COUNT(maps), s->quant_type);
    char round[48], block[32] = "", made[QM_QUANTIZER_TEXT];
    struct qm_quantizer q;
    snprintf(round, sizeof round, "%s", own_word(rounds, COUNT(rounds), s->round_type));
    if (strcmp(map, "lint") == 0)
        QM_TRY(integer_round(s, round, sizeof round));
    if (strcmp(norm, "block") == 0 || strcmp(norm, "rank1block") == 0)
        snprintf(block, sizeof block, ":%lld", (long long)s->group_size);
    snprintf(made, sizeof made, "%s:%d%c/%s%s/%s%s%s", map, s->bits, s->sign ? 's' : 'u', norm,
             block, round,
             s->bits == 8                   ? ""
             : s->bits == 2 || s->bits == 4 ? "/lo"
                                            : "/byte",
             strncmp(s->round_type, "real-", 5) == 0 ? "/nantop" : "");
    QM_TRY(qm_quantizer_parse(made, &q));
    qm_quantizer_print(&q, text);
    return QM_OK;
}

struct qm_lpmm_config qm_lpmm_config_default(void)
{
    const struct qm_lpmm_state m = {.enable = 1,
                                    .bits = 4,
                                    .sign = 1,
                                    .threshold = 4096,
                                    .group_size = 128,
                                    .scale_type = "group",
                                    .quant_type = "nonlinear",
                                    .round_type = "real-nearest"};
    struct qm_lpmm_config c = {m, m};
    c.sqm.sign = 0;
    c.sqm.quant_type = "power-1";
    return c;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
    const char *path;
    int depth;
    yaml_document_t doc;
    struct qm_lpmm_config *c;
    void (*warn)(void *context, const char *line);
    void *context;
};

static yaml_node_t *node(struct reader *r, int id) { return yaml_document_get_node(&r->doc, id); }

static const char *text_of(const yaml_node_t *n) { return (const char *)n->data.scalar.value; }

static int line_of(const yaml_node_t *n) { return (int)n->start_mark.line + 1; }

/* Puts "FILE:LINE: " before the last failure's message. */
static qm_status at_line(const struct reader *r, int line, qm_status st)
{
    char where[512];
    snprintf(where, sizeof where, "%.480s:%d", r->path, line);
    return qm_fail_in(st, where);
}

static qm_status wrong(const struct reader *r, const yaml_node_t *n, const char *key,
                       const char *want)
{
    int is_text = n->type == YAML_SCALAR_NODE;
    qm_status st = qm_fail(QM_BAD_ARG, "%s is %s%.60s%s, expected %s", key, is_text ? "'" : "",
                           is_text ? text_of(n) : "a list or a map", is_text ? "'" : "", want);
    return at_line(r, line_of(n), st);
}

/* Whether a node is an unquoted scalar: in the source's YAML 1.1 quoted ones are text. */
static int is_plain(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE && n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static qm_status read_bool(const struct reader *r, const yaml_node_t *n, const char *key, int *out)
{
    static const char *const words[] = {"false", "no", "off", "true", "yes", "on"};
    for (int i = 0; i < COUNT(words) && is_plain(n); i++)
        if (strcasecmp(text_of(n), words[i]) == 0) {
            *out = i >= 3;
            return QM_OK;
        }
    return wrong(r, n, key, "True or False");
}

static qm_status read_count(const struct reader *r, const yaml_node_t *n, const char *key,
                            int64_t least, int64_t most, int64_t *out)
{
    char *end = NULL, want[80];
    errno = 0;
    const char *digits = is_plain(n) ? text_of(n) + strspn(text_of(n), "+-") : "";
    /* 0200 is 128 where YAML 1.1 is read, as by the package */
    int is_octal = digits[0] == '0' && digits[1] != '\0';
    long long x = is_plain(n) && !is_octal ? strtoll(text_of(n), &end, 10) : 0;
    snprintf(want, sizeof want, "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    if (!end || end == text_of(n) || *end || errno || x < least || x > most)
        return wrong(r, n, key, want);
    *out = x;
    return QM_OK;
}

static qm_status read_word(const struct reader *r, const yaml_node_t *n, const char *key,
                           const char *axis, struct qm_lpmm_state *s)
{
    if (n->type != YAML_SCALAR_NODE)
        return wrong(r, n, key, "one word");
    return qm_lpmm_state_set(s, axis, text_of(n)) == QM_OK ? QM_OK
                                                           : at_line(r, line_of(n), QM_BAD_ARG);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Keys that no published optimizer reads, by full name; nor does any read the keys of P and G. */
static const char *const ignored[] = {
    "QUANT.INIT_STATES",
    "QUANT.DEBUG.TRUNCATED_RATE_STAT_ITER",
    "QUANT.DEBUG.ROW_ABSMAX_STAT_ITER",
    "QUANT.DEBUG.ROW_ABSMAX_STAT_EPOCH",
    "TRAIN",
    "OUTPUT",
    "TAG",
    "LOCAL_RANK",
};
static const char *const state_keys[] = {
    "ENABLE",
    "THRESHOLD",
    "EXCLUDE_SUFFIX",
    "BITS",
    "SCALE_TYPE.DEFAULT",
    "EXCLUDE_REGEX",
    "ROUND_TYPE",
    "QUANT_TYPE.DEFAULT",
    "SCALE_TYPE.DEFAULT_ONLY",
    "GROUP_SIZE",
    "SIGNED",
    "QUANT_TYPE.DEFAULT_ONLY",
};
static const char *const states[] = {"P", "G", "M", "SQM"};

/* Writes the full names of all keys; returns how many there are. */
enum { KEYS = 1 + COUNT(ignored) + COUNT(states) * COUNT(state_keys) };
static int all_keys(char keys[KEYS][LONGEST_KEY])
{
    int n = 0;
    snprintf(keys[n++], LONGEST_KEY, "BASE");
    for (int i = 0; i < COUNT(ignored); i++)
        snprintf(keys[n++], LONGEST_KEY, "%s", ignored[i]);
    for (int s = 0; s < COUNT(states); s++)
        for (int i = 0; i < COUNT(state_keys); i++)
            snprintf(keys[n++], LONGEST_KEY, "QUANT.%s.%s", states[s], state_keys[i]);
    return n;
}

/* 2: a key; 1: a prefix of keys, as "QUANT.M"; 0: neither, and the message names the
 * nearest key. */
static int find_key(const char *key)
{
    char keys[KEYS][LONGEST_KEY];
    const char *names[KEYS];
    int n = all_keys(keys);
    size_t length = strlen(key);
    for (int i = 0; i < n; i++) {
        names[i] = keys[i];
        if (strcmp(keys[i], key) == 0)
            return 2;
    }
    for (int i = 0; i < n; i++)
        if (strncmp(keys[i], key, length) == 0 && keys[i][length] == '.')
            return 1;
    (void)unknown("key", key, names, n);
    return 0;
}

static void ignore(const struct reader *r, int line, const char *key)
{
    char text[768];
    snprintf(text, sizeof text, "%.480s:%d: %s is ignored, as by the published optimizers", r->path,
             line, key);
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = '?';
    if (r->warn)
        r->warn(r->context, text);
}

static qm_status set_state(const struct reader *r, int line, const char *key, const char *sub,
                           const yaml_node_t *n, struct qm_lpmm_state *s)
{
    int64_t x = 0;
    if (strcmp(sub, "ENABLE") == 0)
        return read_bool(r, n, key, &s->enable);
    if (strcmp(sub, "SIGNED") == 0)
        return read_bool(r, n, key, &s->sign);
    if (strcmp(sub, "THRESHOLD") == 0)
        return read_count(r, n, key, 0, 1LL << 40, &s->threshold);
    if (strcmp(sub, "GROUP_SIZE") == 0)
        return read_count(r, n, key, 1, 1LL << 40, &s->group_size);
    if (strcmp(sub, "BITS") == 0) {
        QM_TRY(read_count(r, n, key, 2, 8, &x));
        s->bits = (int)x;
        return QM_OK;
    }
    if (strcmp(sub, "ROUND_TYPE") == 0)
        return read_word(r, n, key, sub, s);
    if (strcmp(sub, "SCALE_TYPE.DEFAULT") == 0)
        return read_word(r, n, key, "SCALE_TYPE", s);
    if (strcmp(sub, "QUANT_TYPE.DEFAULT") == 0)
        return read_word(r, n, key, "QUANT_TYPE", s);
    ignore(r, line, key);
    return QM_OK;
}

static qm_status set_key(struct reader *r, int line, const char *key, const yaml_node_t *n)
{
    if (strcmp(key, "BASE") == 0) /* read before everything else */
        return QM_OK;
    if (strncmp(key, "QUANT.M.", 8) == 0)
        return set_state(r, line, key, key + 8, n, &r->c->m);
    if (strncmp(key, "QUANT.SQM.", 10) == 0)
        return set_state(r, line, key, key + 10, n, &r->c->sqm);
    ignore(r, line, key);
    return QM_OK;
}

/* Reads the keys of a map whose full name is `above` ("" for the root). */
static qm_status walk(struct reader *r, const yaml_node_t *map, const char *above)
{
    if (map->type == YAML_SCALAR_NODE && !*text_of(map)) /* "M:" with nothing below it */
        return QM_OK;
    if (map->type != YAML_MAPPING_NODE)
        return wrong(r, map, *above ? above : "the file", "a map of keys");
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *name = node(r, p->key), *value = node(r, p->value);
        char key[LONGEST_KEY];
        if (name->type != YAML_SCALAR_NODE)
            return wrong(r, name, "a key", "a word");
        snprintf(key, sizeof key, "%s%s%.60s", above, *above ? "." : "", text_of(name));
        int found = find_key(key);
        if (found == 0)
            return at_line(r, line_of(name), QM_BAD_ARG);
        QM_TRY(found == 1 ? walk(r, value, key) : set_key(r, line_of(name), key, value));
    }
    return QM_OK;
}

static qm_status read_file(const struct reader *from, const char *path);

/* Reads the files that BASE lists, relative to this file's folder; '' names no file. */
static qm_status read_bases(struct reader *r, const yaml_node_t *root)
{
    const char *slash = strrchr(r->path, '/');
    char path[1024];
    if (root->type != YAML_MAPPING_NODE)
        return QM_OK; /* walk() refuses it */
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *key = node(r, p->key), *list = node(r, p->value);
        if (key->type != YAML_SCALAR_NODE || strcmp(text_of(key), "BASE") != 0)
            continue;
        if (list->type != YAML_SEQUENCE_NODE)
            return wrong(r, list, "BASE", "a list of files");
        yaml_node_item_t *i = list->data.sequence.items.start;
        for (; i < list->data.sequence.items.top; i++) {
            const yaml_node_t *file = node(r, *i);
            if (file->type != YAML_SCALAR_NODE)
                return wrong(r, file, "BASE", "a list of files");
            int is_here = slash && *text_of(file) != '/';
            snprintf(path, sizeof path, "%.*s%.500s", is_here ? (int)(slash + 1 - r->path) : 0,
                     r->path, text_of(file));
            if (*text_of(file) && r->depth == DEEPEST)
                return at_line(r, line_of(file),
                               qm_fail(QM_BAD_ARG, "BASE files %d deep: a circle?", DEEPEST));
            if (*text_of(file))
                QM_TRY(read_file(r, path));
        }
    }
    return QM_OK;
}

static qm_status read_document(struct reader *r, FILE *f)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return qm_fail(QM_NO_MEMORY, "configuration");
    yaml_parser_set_input_file(&parser, f);
    qm_status st = QM_OK;
    if (!yaml_parser_load(&parser, &r->doc)) {
        st = qm_fail(QM_BAD_ARG, "not YAML: %s",
                     parser.problem ? parser.problem : "cannot be parsed");
        st = at_line(r, (int)parser.problem_mark.line + 1, st);
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&r->doc);
        st = root ? read_bases(r, root) : at_line(r, 1, qm_fail(QM_BAD_ARG, "the file is empty"));
        if (st == QM_OK)
            st = walk(r, root, "");
        yaml_document_delete(&r->doc);
    }
    yaml_parser_delete(&parser);
    return st;
}

static qm_status read_file(const struct reader *from, const char *path)
{
    struct reader r = {.path = path,
                       .depth = from->depth + 1,
                       .c = from->c,
                       .warn = from->warn,
                       .context = from->context};
    FILE *f = NULL;
    QM_TRY(qm_text_open(path, &f));
    qm_status st = read_document(&r, f);
    fclose(f);
    return st;
}

qm_status qm_lpmm_config_read(const char *path, void (*warn)(void *context, const char *line),
                              void *context, struct qm_lpmm_config *out)
{
    char text[QM_RECIPE_TEXT];
    struct qm_lpmm_config c = qm_lpmm_config_default();
    struct reader start = {.c = &c, .warn = warn, .context = context};
    QM_TRY(read_file(&start, path));
    qm_status st = qm_lpmm_config_recipe(&c, text);
    if (st != QM_OK)
        return qm_fail_in(st, path);
    *out = c;
    return QM_OK;
}

/* ---- recipes --------------------------------------------------------------------------------- */

static qm_status set_slot(struct qm_recipe *r, const char *slot, const struct qm_lpmm_state *s)
{
    char quantizer[QM_QUANTIZER_TEXT] = "f32", key[64], number[32];
    if (s->enable)
        QM_TRY(qm_lpmm_state_quantizer(s, quantizer));
    QM_TRY(qm_recipe_set(r, slot, quantizer));
    snprintf(key, sizeof key, "%s.min_numel", slot);
    snprintf(number, sizeof number, "%lld", (long long)(s->enable ? s->threshold + 1 : 0));
    return qm_recipe_set(r, key, number);
}

qm_status qm_lpmm_config_recipe(const struct qm_lpmm_config *c, char *text)
{
    static const char *const bases[] = {"adamw4_lpmm_group", "adamw4_lpmm", "adamw8_lpmm",
                                        "adamw_lpmm_vonly"};
    char best[QM_RECIPE_TEXT] = "", made[QM_RECIPE_TEXT];
    for (int i = 0; i < COUNT(bases); i++) {
        struct qm_recipe r;
        QM_TRY(qm_recipe_parse(bases[i], &r));
        QM_TRY(set_slot(&r, "exp_avg", &c->m));
        QM_TRY(set_slot(&r, "exp_avg_sq", &c->sqm));
        QM_TRY(qm_recipe_applicable(&r));
        qm_recipe_print(&r, made);
        if (!*best || strlen(made) < strlen(best))
            memcpy(best, made, sizeof best);
    }
    memcpy(text, best, sizeof best);
    return QM_OK;
}
