/* emu_symbol.h - Names of C++ symbols for people. */
#ifndef QM_EMU_SYMBOL_H
#define QM_EMU_SYMBOL_H

enum { QM_SYMBOL_TEXT = 160 };

/* Writes the name of a symbol of n bytes without its types: "a::f" of _ZN1a1fIiEEvT_; operators are
 * "operator", constructors the name of their class twice.  A symbol of C stays as it is. */
void qm_symbol_text(const char *symbol, int n, char text[QM_SYMBOL_TEXT]);

/* 1: the symbol is the function of a lambda, or one within it. */
int qm_symbol_is_lambda(const char *symbol, int n);

#endif
