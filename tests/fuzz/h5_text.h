/* h5_text.h - Makes an HDF5 file of lines of text, so that a fuzzer changes what a file says.
 *
 * Flipped bytes of an HDF5 file end in the library; lines make a sound file with anything in it:
 *
 *     g PATH                          a group
 *     d PATH TYPE DIMS VALUE...       a dataset; of few values the last one repeats
 *     a PATH NAME TYPE DIMS VALUE...  an attribute
 *     l PATH TARGET                   a soft link
 *     h PATH TARGET                   a hard link
 *
 * TYPE is f, i, u or b (a truth value as h5py stores it) and the bytes, with > for big-endian; sN a
 * text of N bytes, sv one of variable length, whose values are the rest of the line; a ! before it
 * makes a chunked dataset that stores nothing, of any size.  DIMS is 3x4, or - for a scalar.  Lines
 * that cannot be are left out. */
#ifndef QM_FUZZ_H5_TEXT_H
#define QM_FUZZ_H5_TEXT_H

#define H5_USE_110_API
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H5_TEXT_WORDS = 64, H5_TEXT_LINES = 200, H5_TEXT_NUMEL = 1 << 14 };

static hid_t h5_text_type(const char *word)
{
    const char *kind = word[0] == '>' ? word + 1 : word;
    unsigned long n = *kind ? strtoul(kind + 1, NULL, 10) : 0;
    hid_t t = -1;
    if (*kind == 's') {
        t = H5Tcopy(H5T_C_S1);
        H5Tset_size(t, kind[1] == 'v' ? H5T_VARIABLE : n > 0 && n < 70000 ? n : 1);
    } else if (*kind == 'f') {
        t = H5Tcopy(n == 8 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
        if (n == 2 && (H5Tset_fields(t, 15, 10, 5, 0, 10) < 0 || H5Tset_size(t, 2) < 0))
            n = 0;
    } else if (*kind == 'b') {
        signed char no = 0, yes = 1;
        t = H5Tenum_create(H5T_STD_I8LE);
        H5Tenum_insert(t, "FALSE", &no);
        H5Tenum_insert(t, "TRUE", &yes);
    } else if (*kind == 'i' || *kind == 'u') {
        t = H5Tcopy(*kind == 'i' ? H5T_STD_I64LE : H5T_STD_U64LE);
        if (n == 1 || n == 2 || n == 4)
            H5Tset_size(t, n);
    }
    if (t >= 0 && kind > word)
        H5Tset_order(t, H5T_ORDER_BE);
    return t;
}

/* The dataspace of DIMS; *n: its elements, or -1 where they are too many to be written. */
static hid_t h5_text_space(const char *word, hsize_t dim[H5S_MAX_RANK], int *rank, long *n)
{
    *rank = 0;
    *n = 1;
    if (*word == '-')
        return H5Screate(H5S_SCALAR);
    for (char *at = (char *)word; *rank < H5S_MAX_RANK; at++) {
        dim[(*rank)++] = strtoull(at, &at, 10);
        *n = *n < 0 || dim[*rank - 1] > H5_TEXT_NUMEL ? -1 : *n * (long)dim[*rank - 1];
        *n = *n > H5_TEXT_NUMEL ? -1 : *n;
        if (*at != 'x')
            break;
    }
    return H5Screate_simple(*rank, dim, NULL);
}

/* n values in a buffer that the caller frees: of texts the rest of the line, else doubles; *memory:
 * their type. */
static void *h5_text_values(char **word, int words, const char *rest, hid_t type, long n,
                            hid_t *memory)
{
    int is_text = H5Tget_class(type) == H5T_STRING, is_long = H5Tis_variable_str(type) > 0;
    size_t each = is_text ? H5Tget_size(type) : sizeof(double);
    char *out = calloc((size_t)n + 1, each);
    *memory = is_text ? type : H5T_NATIVE_DOUBLE;
    for (long i = 0; out && i < n; i++) {
        if (is_long)
            memcpy(out + (size_t)i * each, &rest, sizeof rest);
        else if (is_text)
            memcpy(out + (size_t)i * each, rest, strnlen(rest, each));
        else if (words > 0)
            ((double *)out)[i] = strtod(word[i < words ? i : words - 1], NULL);
    }
    return out;
}

struct h5_text_line {
    char *word[H5_TEXT_WORDS];
    const char *rest[H5_TEXT_WORDS]; /* of the line, from each word on */
    int words;
};

/* Makes a dataset (at word 1) or an attribute (of the object at word 1); `at` is TYPE's word. */
static void h5_text_array(hid_t file, const struct h5_text_line *l, int at, hid_t links)
{
    hsize_t dim[H5S_MAX_RANK], chunk[H5S_MAX_RANK];
    int rank, is_claim = l->word[at][0] == '!';
    long n;
    hid_t type = h5_text_type(l->word[at] + is_claim), memory = -1;
    hid_t space = h5_text_space(l->word[at + 1], dim, &rank, &n), made = -1;
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    for (int i = 0; i < rank; i++)
        chunk[i] = dim[i] > 0 && dim[i] < 4 ? dim[i] : 4;
    if (is_claim && rank > 0) {
        H5Pset_chunk(plist, rank, chunk);
        H5Pset_deflate(plist, 1);
    }
    if (type >= 0 && space >= 0 && (n >= 0 || (is_claim && at == 2)))
        made = at == 2 ? H5Dcreate2(file, l->word[1], type, space, links, plist, H5P_DEFAULT)
                       : H5Acreate_by_name(file, l->word[1], l->word[2], type, space, H5P_DEFAULT,
                                           H5P_DEFAULT, H5P_DEFAULT);
    if (made >= 0 && n > 0 && !is_claim) {
        int first = at + 2 < l->words ? at + 2 : l->words;
        const char *rest = first < l->words ? l->rest[first] : "";
        void *x =
            h5_text_values((char **)l->word + first, l->words - first, rest, type, n, &memory);
        if (at == 2)
            H5Dwrite(made, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, x);
        else
            H5Awrite(made, memory, x);
        free(x);
    }
    if (made >= 0)
        H5Idec_ref(made);
    H5Pclose(plist);
    H5Sclose(space);
    H5Tclose(type);
}

static void h5_text_line_make(hid_t file, char *text, hid_t links)
{
    struct h5_text_line l = {.words = 0};
    char *whole = strdup(text), *save = NULL;
    for (char *w = strtok_r(text, " ", &save); w && l.words < H5_TEXT_WORDS;
         w = strtok_r(NULL, " ", &save)) {
        l.rest[l.words] = whole + (w - text);
        l.word[l.words++] = w;
    }
    char kind = l.words > 1 ? l.word[0][0] : 0;
    if (kind == 'g') {
        hid_t g = H5Gcreate2(file, l.word[1], links, H5P_DEFAULT, H5P_DEFAULT);
        if (g >= 0)
            H5Gclose(g);
    } else if (kind == 'd' && l.words > 3) {
        h5_text_array(file, &l, 2, links);
    } else if (kind == 'a' && l.words > 4) {
        h5_text_array(file, &l, 3, links);
    } else if (kind == 'l' && l.words > 2) {
        H5Lcreate_soft(l.word[2], file, l.word[1], links, H5P_DEFAULT);
    } else if (kind == 'h' && l.words > 2) {
        H5Lcreate_hard(file, l.word[2], file, l.word[1], links, H5P_DEFAULT);
    }
    free(whole);
}

/* Writes the file at `path` in one piece. */
static void h5_text_make(const char *path, const char *text, size_t n)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), links = H5Pcreate(H5P_LINK_CREATE);
    char *copy = strndup(text, n), *save = NULL;
    int lines = 0;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5Pset_fapl_core(access, 1 << 16, 1);
    H5Pset_create_intermediate_group(links, 1);
    remove(path);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    for (char *line = strtok_r(copy, "\n", &save); file >= 0 && line && lines++ < H5_TEXT_LINES;
         line = strtok_r(NULL, "\n", &save))
        h5_text_line_make(file, line, links);
    free(copy);
    if (file >= 0)
        H5Fclose(file);
    H5Pclose(links);
    H5Pclose(access);
}

#endif
