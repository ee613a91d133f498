/* quantizer_text.c - Parses and prints quantizers. */
#include "core/quant/quantizer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/base/number.h"
#include "core/quant/expand.h"

/* clang-format off */
const char *const qm_map_names[QM_MAP_COUNT] = {
#define X(name, from, to, signs, text) #name,
    QM_MAP_LIST(X)
#undef X
};
static const struct { int from, to, signs; } map_widths[] = {
#define X(name, from, to, signs, text) {from, to, signs},
    QM_MAP_LIST(X)
#undef X
};
const char *const qm_norm_names[QM_NORM_COUNT] = {
#define X(name, text) #name,
    QM_NORM_LIST(X)
#undef X
};
const char *const qm_curve_names[QM_CURVE_COUNT] = {
#define X(name, text) #name,
    QM_CURVE_LIST(X)
#undef X
};
const char *const qm_search_names[QM_SEARCH_COUNT] = {
#define X(name, text) #name,
    QM_SEARCH_LIST(X)
#undef X
};
static const char *const round_names[] = {
#define X(name, text, kind) #name,
    QM_ROUND_LIST(X)
#undef X
};
static const char *const unit_names[] = {
#define X(name, text) #name,
    QM_UNIT_LIST(X)
#undef X
};
static const char *const pack_names[] = {
#define X(name, text) #name,
    QM_PACK_LIST(X)
#undef X
};
static const char *const plain_names[QM_PLAIN_COUNT] = {[QM_PLAIN_f32] = "f32",
                                                        [QM_PLAIN_bf16] = "bf16",
                                                        [QM_PLAIN_f16] = "f16",
                                                        [QM_PLAIN_i16] = "i16"};
/* Every word that may follow the map, for suggestions. */
static const char *const words[] = {
#define X(name, ...) #name,
    QM_NORM_LIST(X) QM_CURVE_LIST(X) QM_SEARCH_LIST(X)
    QM_ROUND_LIST(X) QM_UNIT_LIST(X) QM_PACK_LIST(X) QM_SCALE_WORD_LIST(X)
#undef X
    "logblock",
};
/* The settings of a quantizer string, each of which may occur once. */
#define SETTING_LIST(X)                                                                           \
    X(norm) X(curve) X(search) X(round) X(unit) X(pack) X(floor) X(plus) X(guard) X(cap) X(quantile) X(zero) X(least) \
    X(maxskip) X(nan) X(sign) X(f16) X(nest)
/* clang-format on */
enum { COUNT_WORDS = sizeof words / sizeof *words };
enum setting {
#define X(name) SET_##name,
    SETTING_LIST(X)
#undef X
        SETTINGS
};
static const char *const setting_names[] = {
#define X(name) #name,
    SETTING_LIST(X)
#undef X
};

/* The axes whose word is one of their names. */
static const struct {
    enum setting setting;
    int count;
    const char *const *names;
} choices[] = {{SET_curve, QM_CURVE_COUNT, qm_curve_names},
               {SET_search, QM_SEARCH_COUNT, qm_search_names},
               {SET_round, QM_ROUND_COUNT, round_names},
               {SET_unit, QM_UNIT_COUNT, unit_names},
               {SET_pack, QM_PACK_COUNT, pack_names}};
enum { CHOICES = sizeof choices / sizeof *choices };

/* The words of axis scale. */
struct scale_word {
    const char *word;
    enum setting setting;
    enum { FLAG, WHOLE, REAL } value; /* nothing, a whole or a positive number after ':' */
    int number; /* FLAG: the member's value; WHOLE: the least number allowed */
};
static const struct scale_word scale_words[] = {
#define X(word, setting, value, number, text) {#word, SET_##setting, value, number},
    QM_SCALE_WORD_LIST(X)
#undef X
};
enum { EXPAND_DEFAULT = 16 }; /* the source's expand_min */
enum { SCALE_WORDS = sizeof scale_words / sizeof *scale_words };

/* How often a string has said each setting so far. */
struct seen {
    int count[SETTINGS];
};

static qm_status once(struct seen *s, enum setting setting, const char *word)
{
    if (s->count[setting]++)
        return qm_fail(QM_BAD_ARG, "second %s word '%s'", setting_names[setting], word);
    return QM_OK;
}

/* Reads the whole number of at least `least` after "word:". */
static qm_status read_count(const char *word, const char *value, int64_t least, int64_t *out)
{
    char *end;
    long long v = value && *value ? strtoll(value, &end, 10) : 0;
    if (!value || !*value || *end || v < least || v > (1LL << 40))
        return qm_fail(QM_BAD_ARG, "'%s' wants a whole number from %lld to 2^40 after ':'", word,
                       (long long)least);
    *out = v;
    return QM_OK;
}

/* Reads the positive number after "word:", as the nearest double and the nearest float. */
static qm_status read_real(const char *word, const char *value, double *exact, float *out)
{
    char *end;
    float v = value && *value ? strtof(value, &end) : 0.0f;
    if (!value || !*value || *end || !(v > 0.0f) || v > 3e38f)
        return qm_fail(QM_BAD_ARG, "'%s' wants a positive number after ':'", word);
    *exact = strtod(value, &end);
    *out = v;
    return QM_OK;
}

#define FIND(names, word) qm_name_find(word, names, (int)(sizeof names / sizeof *names))

static qm_status no_value(const char *word, const char *value)
{
    return value ? qm_fail(QM_BAD_ARG, "'%s' takes no value", word) : QM_OK;
}

/* Reads a word of axis scale. */
static qm_status read_scale_word(struct qm_scale_rule *r, struct seen *s,
                                 const struct scale_word *w, const char *value)
{
    int64_t n = w->number;
    double exact = 0.0;
    float v = 0.0f;
    QM_TRY(once(s, w->setting, w->word));
    if (w->value == WHOLE)
        QM_TRY(read_count(w->word, value, w->number, &n));
    if (w->value == REAL)
        QM_TRY(read_real(w->word, value, &exact, &v));
    int clipped = (int)(n < 1 << 16 ? n : 1 << 16); /* beyond the codes of every map */
    switch (w->setting) {
    case SET_floor: r->floor = v; break;
    case SET_plus: r->plus = exact; break;
    case SET_guard: r->guard = v; break;
    case SET_cap: r->cap = v; break;
    case SET_quantile: r->quantile = v; break;
    case SET_zero: r->zero = clipped; break;
    case SET_least: r->least = clipped; break;
    case SET_nest: r->nest = n; break;
    case SET_maxskip: r->max_skips_nan = 1; break;
    case SET_nan: r->nan = (enum qm_nan)clipped; break;
    case SET_sign: r->keep_sign = 1; break;
    case SET_f16: r->f16 = (enum qm_f16)clipped; break;
    default: break;
    }
    return QM_OK;
}

static void choose(struct qm_quantizer *q, enum setting setting, int choice)
{
    switch (setting) {
    case SET_curve:
        q->curve = (enum qm_curve)choice;
        q->expand = choice == QM_CURVE_expand ? EXPAND_DEFAULT : 0;
        break;
    case SET_search: q->search = (enum qm_search)choice; break;
    case SET_round: q->round = (enum qm_round)choice; break;
    case SET_unit: q->unit = (enum qm_unit)choice; break;
    case SET_pack: q->pack = (enum qm_pack)choice; break;
    default: break;
    }
}

static const struct scale_word *find_scale_word(const char *word)
{
    for (int i = 0; i < SCALE_WORDS; i++)
        if (strcmp(word, scale_words[i].word) == 0)
            return &scale_words[i];
    return NULL;
}

/* Whether a word takes a value after ':' that may be a whole number. */
static int takes_number(const char *word)
{
    const struct scale_word *w = find_scale_word(word);
    int norm = FIND(qm_norm_names, word);
    return strcmp(word, "logblock") == 0 || strcmp(word, "expand") == 0 ||
           (norm >= 0 && qm_norm_has_block((enum qm_norm)norm)) || (w && w->value != FLAG);
}

/* Whether a word has its number without the ':', as "block64", "block 64" or "block-64"; out: what
 * is meant. */
enum { QM_WORD_MEANT = 64 };
static int value_joined(const char *word, char out[QM_WORD_MEANT])
{
    for (int i = 0; i < COUNT_WORDS; i++) {
        size_t n = strlen(words[i]);
        if (strncmp(word, words[i], n) != 0 || !takes_number(words[i]))
            continue;
        const char *number = word + n + strspn(word + n, " _-=");
        size_t digits = strspn(number, "0123456789");
        if (digits > 0 && digits < 20 && !number[digits])
            return snprintf(out, QM_WORD_MEANT, "%s:%s", words[i], number);
    }
    return 0;
}

/* Reads one word after the map.  value: the text after ':', or NULL. */
static qm_status read_word(struct qm_quantizer *q, struct seen *s, const char *word,
                           const char *value)
{
    const struct scale_word *w = find_scale_word(word);
    int64_t n = 0;
    int i = FIND(qm_norm_names, word);
    if (strcmp(word, "logblock") == 0) {
        QM_TRY(once(s, SET_norm, word));
        QM_TRY(once(s, SET_curve, word));
        q->norm = QM_NORM_block;
        q->curve = QM_CURVE_log2;
        return read_count(word, value, 1, &q->block);
    }
    if (i >= 0) {
        QM_TRY(once(s, SET_norm, word));
        q->norm = (enum qm_norm)i;
        return qm_norm_has_block(q->norm)
                   ? read_count(word, value, q->norm != QM_NORM_divblock, &q->block)
                   : no_value(word, value);
    }
    if (w && w->value != FLAG && value) /* alone it may be another axis's: floor is a round */
        return read_scale_word(&q->scale, s, w, value);
    for (int k = 0; k < CHOICES; k++)
        if ((i = qm_name_find(word, choices[k].names, choices[k].count)) >= 0) {
            choose(q, choices[k].setting, i);
            QM_TRY(once(s, choices[k].setting, word));
            if (choices[k].setting != SET_curve || i != QM_CURVE_expand || !value)
                return no_value(word, value);
            QM_TRY(read_count(word, value, 1, &n));
            q->expand = n <= QM_EXPAND_MOST ? (int)n : QM_EXPAND_MOST + 1;
            return QM_OK;
        }
    char meant[QM_WORD_MEANT];
    if (!w && value_joined(word, meant))
        return qm_fail(QM_NO_MATCH, "no word '%s'; did you mean '%s'?", word, meant);
    if (!w)
        return qm_name_unknown("word", word, words, COUNT_WORDS);
    QM_TRY(no_value(word, value));
    return read_scale_word(&q->scale, s, w, value);
}

/* Whether a word is a map's name and a width that it has, as int8 is; writes what the map
 * is called here, "int:8s". */
static int has_width(const char *word, char out[24])
{
    char *end;
    int is_unsigned = *word == 'u';
    size_t n = strcspn(word += is_unsigned, "0123456789");
    long bits = strtol(word + n, &end, 10);
    for (int i = 0; i < QM_MAP_COUNT && word[n] && !*end; i++)
        if (strlen(qm_map_names[i]) == n && strncmp(word, qm_map_names[i], n) == 0 &&
            bits >= map_widths[i].from && bits <= map_widths[i].to &&
            map_widths[i].signs & (is_unsigned ? 1 : 2))
            return snprintf(out, 24, "'%s:%d%c'", qm_map_names[i], (int)bits,
                            is_unsigned ? 'u' : 's');
    return 0;
}

int qm_map_meant(const char *word, char out[QM_MAP_MEANT])
{
    static const struct {
        const char *word, *meant;
    } others[] = {{"uint", "'lint' or 'lin0'"},
                  {"linear", "'lin' or 'lint'"},
                  {"dynamic", "'dyn' or 'de'"},
                  {"fp8", "'e4m3:8s' or 'fp52:8s'"},
                  {"float8", "'e4m3:8s' or 'fp52:8s'"},
                  {"e4m3fn", "'e4m3:8s'"},
                  {"fp8_e4m3", "'e4m3:8s'"},
                  {"fp8_e4m3fn", "'e4m3:8s'"},
                  {"float8_e4m3fn", "'e4m3:8s'"},
                  {"e5m2", "'fp52:8s'"},
                  {"fp8_e5m2", "'fp52:8s'"},
                  {"float8_e5m2", "'fp52:8s'"},
                  {"normalfloat4", "'nf4'"},
                  {"mxfp4", "'fp4' or 'nvfp4'"},
                  {"float4", "'fp4'"}};
    char meant[24], lower[24];
    size_t n = 0;
    for (; word[n] && n + 1 < sizeof lower; n++)
        lower[n] = (char)tolower((unsigned char)word[n]);
    lower[n] = '\0';
    out[0] = '\0';
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(lower, others[i].word) == 0)
            return snprintf(out, QM_MAP_MEANT, "%s", others[i].meant);
    if (has_width(lower, meant))
        return snprintf(out, QM_MAP_MEANT, "%s", meant);
    if (strncmp(lower, "uint", 4) == 0 && lower[4] >= '2' && lower[4] <= '8' && !lower[5])
        return snprintf(out, QM_MAP_MEANT, "'lint:%cu' or 'lin0:%cu'", lower[4], lower[4]);
    return 0;
}

/* Fails for a word that names no map, and says what others mean by it. */
static qm_status unknown_map(const char *word)
{
    static const char *const floats[] = {"f32",  "fp32", "float32",  "f16", "fp16", "float16",
                                         "bf16", "half", "bfloat16", "f64", "none"};
    char meant[QM_MAP_MEANT];
    if (FIND(floats, word) >= 0)
        return qm_fail(QM_NO_MATCH, "no map '%s'; a slot without codes is SLOT=f32", word);
    if (qm_map_meant(word, meant))
        return qm_fail(QM_NO_MATCH, "no map '%s'; did you mean %s?%s", word, meant,
                       strchr(meant, ':') ? " (MAP:BITS, then s, signed, or u)" : "");
    return qm_name_unknown("map", word, qm_map_names, QM_MAP_COUNT);
}

/* Reads a map with its width and sign, such as "dyn:4s". */
static qm_status read_map(struct qm_quantizer *q, const char *word, const char *value)
{
    int i = FIND(qm_map_names, word);
    if (i < 0)
        return unknown_map(word);
    char *end = NULL;
    long bits = value ? strtol(value, &end, 10) : 0;
    if (!value || end == value || (strcmp(end, "s") != 0 && strcmp(end, "u") != 0)) {
        int from = map_widths[i].from, to = map_widths[i].to, signs = map_widths[i].signs;
        return qm_fail(QM_BAD_ARG, "map '%s' wants its width and sign, as %s:%d%c (%s%d bits, %s)",
                       word, word, from <= 4 && to >= 4 ? 4 : to, signs & 2 ? 's' : 'u',
                       from == to  ? ""
                       : from == 2 ? "2 to "
                                   : "up to ",
                       to,
                       signs == 3   ? "signed s or unsigned u"
                       : signs == 2 ? "signed"
                                    : "unsigned");
    }
    q->map = (enum qm_map)i;
    q->bits = bits > 0 && bits < 100 ? (int)bits : 99;
    q->sign = *end == 's';
    return QM_OK;
}

/* Replaces the map; value "nf4" keeps width and sign, "dyn:8u" does not. */
static qm_status set_map(struct qm_quantizer *q, char *value)
{
    char *colon = strchr(value, ':');
    if (colon) {
        *colon++ = '\0';
        QM_TRY(read_map(q, value, colon));
        return qm_map_allows(q->map, q->bits, q->sign)
                   ? QM_OK
                   : qm_fail(QM_BAD_ARG, "map %s does not exist at %d bits %s", value, q->bits,
                             q->sign ? "signed" : "unsigned");
    }
    int i = FIND(qm_map_names, value);
    if (i < 0)
        return unknown_map(value);
    q->map = (enum qm_map)i;
    return QM_OK;
}

/* Fails for what is no axis; where it is a word of one, says how it is set: block=64 is
 * norm=block:64. */
static qm_status unknown_axis(const struct qm_quantizer *q, const char *axis, const char *value,
                              const char *const axes[8])
{
    char word[256];
    for (int with_value = 1; with_value >= 0; with_value--)
        for (int i = 1; i < 8; i++) {
            struct qm_quantizer copy = *q;
            snprintf(word, sizeof word, with_value ? "%.100s:%.100s" : "%.100s", axis, value);
            if (qm_quantizer_set(&copy, axes[i], word) == QM_OK)
                return qm_fail(QM_NO_MATCH, "no axis '%s'; it is a word of axis %s: SLOT.%s=%s",
                               axis, axes[i], axes[i], word);
        }
    return qm_name_unknown("axis", axis, axes, 8);
}

/* Fails for what is no word of any axis, with the words of this one. */
static qm_status unknown_word(const char *axis, const char *word)
{
    char meant[QM_WORD_MEANT];
    if (value_joined(word, meant))
        return qm_fail(QM_NO_MATCH, "no %s '%s'; did you mean '%s'?", axis, word, meant);
    static const char *const scales[] = {
#define X(name, ...) #name,
        QM_SCALE_WORD_LIST(X)
#undef X
    };
    if (strcmp(axis, "norm") == 0)
        qm_name_none_of(axis, word, qm_norm_names, QM_NORM_COUNT);
    else if (strcmp(axis, "scale") == 0)
        qm_name_none_of(axis, word, scales, SCALE_WORDS);
    for (int k = 0; k < CHOICES; k++)
        if (strcmp(axis, setting_names[choices[k].setting]) == 0)
            qm_name_none_of(axis, word, choices[k].names, choices[k].count);
    return QM_NO_MATCH;
}

qm_status qm_quantizer_set(struct qm_quantizer *q, const char *axis, const char *value)
{
    static const char *const axes[] = {"map",   "norm", "curve", "search",
                                       "round", "unit", "scale", "pack"};
    char copy[256], *rest = copy, *word;
    struct seen seen = {{0}};
    struct qm_quantizer next = *q;
    if (qm_name_find(axis, axes, 8) < 0)
        return unknown_axis(q, axis, value, axes);
    if (strlen(value) >= sizeof copy)
        return qm_fail(QM_BAD_ARG, "axis %s: the value is too long", axis);
    strcpy(copy, value);
    if (strcmp(axis, "map") == 0) {
        QM_TRY(set_map(&next, copy));
        *q = next;
        return QM_OK;
    }
    if (strcmp(axis, "scale") == 0)
        next.scale = (struct qm_scale_rule){.zero = -1};
    while (strcmp(value, "none") != 0 && (word = strsep(&rest, "/")) != NULL) {
        char *colon = strchr(word, ':');
        if (colon)
            *colon++ = '\0';
        if (FIND(words, word) < 0)
            return unknown_word(axis, word);
        QM_TRY(read_word(&next, &seen, word, colon));
    }
    int scale = 0;
    for (int i = 0; i < SCALE_WORDS; i++)
        scale |= seen.count[scale_words[i].setting];
    const int *said = seen.count;
    const int used[] = {0,
                        said[SET_norm],
                        said[SET_curve] && !said[SET_norm], /* logblock says both */
                        said[SET_search],
                        said[SET_round],
                        said[SET_unit],
                        scale,
                        said[SET_pack]};
    for (int i = 0; i < 8; i++)
        if (used[i] && strcmp(axis, axes[i]) != 0)
            return qm_fail(QM_BAD_ARG, "'%s' is a word of axis %s, not of %s", value, axes[i],
                           axis);
    if (strcmp(axis, "curve") == 0 && strcmp(value, "none") == 0)
        choose(&next, SET_curve, QM_CURVE_none);
    *q = next;
    return QM_OK;
}

qm_status qm_quantizer_parse(const char *text, struct qm_quantizer *out)
{
    struct qm_quantizer q = {.scale = {.zero = -1},
                             .round = QM_ROUND_mid,
                             .norm = QM_NORM_tensor,
                             .search = QM_SEARCH_bisect};
    struct seen seen = {{0}};
    char copy[512], *rest = copy, *word;
    qm_status st = QM_OK;
    for (int i = 0; i < QM_PLAIN_COUNT; i++)
        if (strcmp(text, plain_names[i]) == 0) {
            q.plain = (enum qm_plain)i;
            *out = q;
            return QM_OK;
        }
    if (strlen(text) >= sizeof copy)
        return qm_fail(QM_BAD_ARG, "a quantizer string has at most %zu characters",
                       sizeof copy - 1);
    char *to = copy;
    for (const char *from = text; *from; from++) /* blanks between words are for the eye */
        if (*from != ' ' && *from != '\t')
            *to++ = *from;
    *to = '\0';
    for (int i = 0; st == QM_OK && (word = strsep(&rest, "/")) != NULL; i++) {
        char *value = strchr(word, ':');
        if (value)
            *value++ = '\0';
        st = i == 0 ? read_map(&q, word, value) : read_word(&q, &seen, word, value);
    }
    if (st == QM_OK && !seen.count[SET_norm])
        st = qm_fail(QM_BAD_ARG, "no norm; add one such as /block:128, /rank1 or /tensor");
    if (st == QM_OK)
        st = qm_quantizer_applicable(&q);
    if (st != QM_OK) {
        char where[560];
        snprintf(where, sizeof where, "quantizer '%s'", text);
        return qm_fail_in(st, where);
    }
    *out = q;
    return QM_OK;
}

char *qm_quantizer_print(const struct qm_quantizer *q, char *text)
{
    size_t n = 0, size = QM_QUANTIZER_TEXT;
    char number[QM_NUMBER_TEXT];
#define PUT(...) n += (size_t)snprintf(text + n, n < size ? size - n : 0, __VA_ARGS__)
    if (q->bits == 0) {
        PUT("%s", plain_names[q->plain]);
        return text;
    }
    PUT("%s:%d%c/%s", qm_map_names[q->map], q->bits, q->sign ? 's' : 'u', qm_norm_names[q->norm]);
    if (qm_norm_has_block(q->norm))
        PUT(":%lld", (long long)q->block);
    PUT("/%s/%s", qm_search_names[q->search], round_names[q->round]);
    if (q->bits != 8)
        PUT("/%s", pack_names[q->pack]);
    if (q->curve != QM_CURVE_none)
        PUT("/%s", qm_curve_names[q->curve]);
    if (q->curve == QM_CURVE_expand)
        PUT(":%d", q->expand);
    if (q->unit != QM_UNIT_div)
        PUT("/%s", unit_names[q->unit]);
    if (q->scale.floor != 0.0f)
        PUT("/floor:%s", qm_float_text(q->scale.floor, number));
    if (q->scale.plus != 0.0)
        PUT("/plus:%s", qm_double_text(q->scale.plus, number));
    if (q->scale.guard != 0.0f)
        PUT("/guard:%s", qm_float_text(q->scale.guard, number));
    if (q->scale.cap != 0.0f)
        PUT("/cap:%s", qm_float_text(q->scale.cap, number));
    if (q->scale.quantile != 0.0f)
        PUT("/quantile:%s", qm_float_text(q->scale.quantile, number));
    if (q->scale.zero >= 0)
        PUT("/zero:%d", q->scale.zero);
    if (q->scale.least > 0)
        PUT("/least:%d", q->scale.least);
    if (q->scale.max_skips_nan)
        PUT("/maxskip");
    if (q->scale.nan != QM_NAN_low)
        PUT("/%s", q->scale.nan == QM_NAN_top ? "nantop" : "nanzero");
    if (q->scale.keep_sign)
        PUT("/keepsign");
    if (q->scale.f16)
        PUT(q->scale.f16 == QM_F16_both   ? "/f16both"
            : q->scale.f16 == QM_F16_bf16 ? "/bf16"
                                          : "/f16");
    if (q->scale.nest)
        PUT("/nest:%lld", (long long)q->scale.nest);
#undef PUT
    return text;
}

int qm_quantizer_equal(const struct qm_quantizer *a, const struct qm_quantizer *b)
{
    char x[QM_QUANTIZER_TEXT], y[QM_QUANTIZER_TEXT];
    return strcmp(qm_quantizer_print(a, x), qm_quantizer_print(b, y)) == 0;
}
