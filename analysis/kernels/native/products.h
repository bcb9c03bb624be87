// The two products of attention for a block of queries, in float32 on vectors and in bfloat16 on AMX tiles.
// A word is 32 bits: a number of float32, or two of bfloat16 that stand side by side.

#pragma once

#include "lanes.h"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define TILES
#endif

const int KEYS = 256;  // keys of a block of scores
const int PAIR = 2;    // vectors side by side in a product
const int PANEL = 32;  // keys, and numbers of a head, come in multiples of this

// Both kinds: a thread calls `begin` before the first product and `end` after the last. `score` makes scores [rows, wide] with rows KEYS apart from queries [rows, width] and keys
// [wide / PANEL, words of width, PANEL]; `put` keeps two vectors of weights where their scores stood; `mix` adds weights
// [rows, wide] times values to sums [rows, width].

// Values as [n, width]; products in registers, DOWN rows by two vectors.
struct Single {
    typedef float Number;
    static const int PER_WORD = 1, DOWN = VECTOR == 64 ? 12 : 6, ROWS = 24;

    static void score(const float *q, const float *keys, float *scores, long rows, long wide, long width) {
        for (long c = 0; c < wide; c += PAIR * LANES)
            for (long r = 0; r < rows; r += DOWN)
                product<false>(q + r * width, width, keys + c / PANEL * PANEL * width + c % PANEL, PANEL, scores + r * KEYS + c, KEYS, width);
    }

    static void put(float *row, long c, Lanes x, Lanes y) {
        store(row + c, x);
        store(row + c + LANES, y);
    }

    static void mix(const float *weights, const float *values, float *sums, long rows, long wide, long width) {
        for (long d = 0; d < width; d += PAIR * LANES)
            for (long r = 0; r < rows; r += DOWN)
                product<true>(weights + r * KEYS, KEYS, values + d, width, sums + r * width + d, width, wide);
    }

    static void value(float *values, long j, const float *v, long size, long width) {
        memcpy(values + j * width, v, size * sizeof(float));
    }

    static void begin() {}
    static void end() {}

    static void finish(float *out, const float *sums, float by, long size) {
        for (long d = 0; d < size; d++) out[d] = sums[d] * by;
    }

private:
    // c = or += a [DOWN, n] b [n, two vectors]; `a_row`, `b_row` and `c_row` are strides in numbers.
    template <bool add> static void product(const float *a, long a_row, const float *b, long b_row, float *c, long c_row, long n) {
        Lanes left[DOWN], right[DOWN];
#pragma GCC unroll 12
        for (int r = 0; r < DOWN; r++) {
            left[r] = add ? load(c + r * c_row) : all(0.f);
            right[r] = add ? load(c + r * c_row + LANES) : all(0.f);
        }
        for (long i = 0; i < n; i++) {
            const Lanes x = load(b + i * b_row), y = load(b + i * b_row + LANES);
#pragma GCC unroll 12
            for (int r = 0; r < DOWN; r++) {
                const Lanes one = all(a[r * a_row + i]);
                left[r] += one * x;
                right[r] += one * y;
            }
        }
#pragma GCC unroll 12
        for (int r = 0; r < DOWN; r++) {
            store(c + r * c_row, left[r]);
            store(c + r * c_row + LANES, right[r]);
        }
    }
};

#ifdef TILES
// Values as [n / 2, width, 2]; products in tiles of 16 rows of 64 bytes, two by two of them. Weights are rounded to
// bfloat16 and take the first half of the row of their scores.
struct Half {
    typedef uint16_t Number;
    static const int PER_WORD = 2, DOWN = 32, ROWS = 32;

    static void score(const uint16_t *q, const float *keys, float *scores, long rows, long wide, long width) {
        for (long c = 0; c < wide; c += PANEL) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (long d = 0; d < width; d += PANEL)
                multiply(q + d, width * 2, q + 16 * width + d, keys + c * width / 2 + d / 2 * PANEL, PANEL * 4);
            _tile_stored(0, scores + c, KEYS * 4);
            _tile_stored(1, scores + c + 16, KEYS * 4);
            _tile_stored(2, scores + 16 * KEYS + c, KEYS * 4);
            _tile_stored(3, scores + 16 * KEYS + c + 16, KEYS * 4);
        }
    }

    static void put(float *row, long c, Lanes x, Lanes y) {
        const __m512bh both = _mm512_cvtne2ps_pbh((__m512)y, (__m512)x);
        memcpy((uint16_t *)row + c, &both, sizeof both);
    }

    static void mix(const float *weights, const float *values, float *sums, long rows, long wide, long width) {
        for (long d = 0; d < width; d += PANEL) {
            float *at = sums + d;
            _tile_loadd(0, at, width * 4);
            _tile_loadd(1, at + 16, width * 4);
            _tile_loadd(2, at + 16 * width, width * 4);
            _tile_loadd(3, at + 16 * width + 16, width * 4);
            for (long c = 0; c < wide; c += PANEL)
                multiply(weights + c / 2, KEYS * 4, weights + 16 * KEYS + c / 2, values + c / 2 * width + d, width * 4);
            _tile_stored(0, at, width * 4);
            _tile_stored(1, at + 16, width * 4);
            _tile_stored(2, at + 16 * width, width * 4);
            _tile_stored(3, at + 16 * width + 16, width * 4);
        }
    }

    static void value(float *values, long j, const uint16_t *v, long size, long width) {
        uint32_t *at = (uint32_t *)(values + j / 2 * width);
        if (j % 2)
            for (long d = 0; d < size; d++) at[d] |= (uint32_t)v[d] << 16;
        else
            for (long d = 0; d < size; d++) at[d] = v[d];
    }

    // Lay out the eight tiles of this thread: 16 rows of 64 bytes each.
    static void begin() {
        struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } all = {1};
        for (int i = 0; i < 8; i++) all.bytes[i] = 64, all.rows[i] = 16;
        _tile_loadconfig(&all);
    }
    static void end() { _tile_release(); }

    static void finish(uint16_t *out, const float *sums, float by, long size) {
        for (long d = 0; d < size; d++) out[d] = nearest(sums[d] * by);
    }

private:
    // Tiles 0 to 3 += two tiles of rows times two tiles of columns, which stand 64 bytes apart; rows are `a_row` and
    // `b_row` bytes long.
    static void multiply(const void *upper, long a_row, const void *lower, const float *b, long b_row) {
        _tile_loadd(4, upper, a_row);
        _tile_loadd(6, b, b_row);
        _tile_loadd(7, b + 16, b_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, lower, a_row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
};
#endif
