/* Polynomials in code that the compiler turns into vectors: multiply-adds without a loop, an array or a call. */
#pragma once

/* AH_HORNER(fma, x, a, b, ..., z): the value at x of the polynomial of these coefficients, the highest power first, by
 * Horner's rule; `fma` is fma or fmaf, x a variable, and there are 2 to 20 coefficients. */
#define AH_HORNER(f, x, ...)                                                                                         \
    AH_HORNER_PICK(__VA_ARGS__, AH_HORNER_20, AH_HORNER_19, AH_HORNER_18, AH_HORNER_17, AH_HORNER_16, AH_HORNER_15,  \
                   AH_HORNER_14, AH_HORNER_13, AH_HORNER_12, AH_HORNER_11, AH_HORNER_10, AH_HORNER_9, AH_HORNER_8,   \
                   AH_HORNER_7, AH_HORNER_6, AH_HORNER_5, AH_HORNER_4, AH_HORNER_3, AH_HORNER_2, )(f, x, __VA_ARGS__)
#define AH_HORNER_PICK(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, name, ...) name
#define AH_HORNER_2(f, x, a, b) f(a, x, b)
#define AH_HORNER_3(f, x, a, b, ...) AH_HORNER_2(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_4(f, x, a, b, ...) AH_HORNER_3(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_5(f, x, a, b, ...) AH_HORNER_4(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_6(f, x, a, b, ...) AH_HORNER_5(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_7(f, x, a, b, ...) AH_HORNER_6(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_8(f, x, a, b, ...) AH_HORNER_7(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_9(f, x, a, b, ...) AH_HORNER_8(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_10(f, x, a, b, ...) AH_HORNER_9(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_11(f, x, a, b, ...) AH_HORNER_10(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_12(f, x, a, b, ...) AH_HORNER_11(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_13(f, x, a, b, ...) AH_HORNER_12(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_14(f, x, a, b, ...) AH_HORNER_13(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_15(f, x, a, b, ...) AH_HORNER_14(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_16(f, x, a, b, ...) AH_HORNER_15(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_17(f, x, a, b, ...) AH_HORNER_16(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_18(f, x, a, b, ...) AH_HORNER_17(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_19(f, x, a, b, ...) AH_HORNER_18(f, x, f(a, x, b), __VA_ARGS__)
#define AH_HORNER_20(f, x, a, b, ...) AH_HORNER_19(f, x, f(a, x, b), __VA_ARGS__)
