// Grouped attention of one head in float32: online softmax over the keys of each token's groups, then over its window.
// Scores are kept in base 2. Until its window was read, a row of `out` holds its sum of values, not yet divided.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

typedef float Lanes __attribute__((vector_size(32)));
typedef int32_t Bits __attribute__((vector_size(32)));

namespace {

const int LANES = 8, ACROSS = 2 * LANES, DOWN = 6;  // a product is computed in tiles of 6 x 16
const int ROWS = 4 * DOWN, KEYS = 256;              // queries and keys of a block
const float NEVER = -1e30f;                         // score of a pair that is not read
const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

Lanes all(float x) { return Lanes{x, x, x, x, x, x, x, x}; }
Lanes load(const float *at) { Lanes x; memcpy(&x, at, sizeof x); return x; }
void store(float *at, Lanes x) { memcpy(at, &x, sizeof x); }
long up(long n, long to) { return (n + to - 1) / to * to; }

// 2^x for x <= 0; 0 for what is smaller than the smallest normal number.
inline Lanes power(Lanes x) {
    x = x < all(-127.f) ? all(-127.f) : x;
    const Lanes shift = all(12582912.f), whole = (x + shift) - shift, f = x - whole;
    Lanes p = all(1.54035304e-4f);
    p = p * f + all(1.33335581e-3f);
    p = p * f + all(9.61812911e-3f);
    p = p * f + all(5.55041087e-2f);
    p = p * f + all(2.40226507e-1f);
    p = p * f + all(6.93147181e-1f);
    p = p * f + all(1.f);
    const Bits exponent = (__builtin_convertvector(whole, Bits) + 127) << 23;
    return p * (Lanes)exponent;
}

// c [6, 16] = or += a [6, n] b [n, 16]; `a_row`, `b_row` and `c_row` are strides in numbers.
template <bool add> inline void product(const float *a, long a_row, const float *b, long b_row, float *c, long c_row, long n) {
    Lanes left[DOWN], right[DOWN];
#pragma GCC unroll 6
    for (int r = 0; r < DOWN; r++) {
        left[r] = add ? load(c + r * c_row) : all(0.f);
        right[r] = add ? load(c + r * c_row + LANES) : all(0.f);
    }
    for (long i = 0; i < n; i++) {
        const Lanes x = load(b + i * b_row), y = load(b + i * b_row + LANES);
#pragma GCC unroll 6
        for (int r = 0; r < DOWN; r++) {
            const Lanes one = all(a[r * a_row + i]);
            left[r] += one * x;
            right[r] += one * y;
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < DOWN; r++) {
        store(c + r * c_row, left[r]);
        store(c + r * c_row + LANES, right[r]);
    }
}

// What a block of queries has read so far, beside room for its scores.
struct Block {
    float *q, *sums, *scores;  // [ROWS, width], [ROWS, width], [ROWS, KEYS]
    float most[ROWS], sum[ROWS];
    int32_t place[ROWS], set[ROWS];  // where in the text a row stands; the groups it counts elsewhere
    long width;
    int rows;
};

// Keys and values in the order in which they are read: keys as [n / 16, width, 16], values as [n, width].
struct Held {
    float *keys, *values;
    int32_t *place, *set;
};

// Read the keys first .. last (first a multiple of 16) of those held. `near`: those less than `window` back and none of
// the future; else those at least `window` back that share no group of the row's `set`. `plain`: all of them.
template <bool near> void read(Block &block, const Held &held, long first, long last, int window, bool plain) {
    const long width = block.width, n = last - first, wide = up(n, ACROSS);
    for (long c = 0; c < wide; c += ACROSS)
        for (int r = 0; r < block.rows; r += DOWN)
            product<false>(block.q + r * width, width, held.keys + (first + c) * width, ACROSS, block.scores + r * KEYS + c, KEYS, width);
    for (int r = 0; r < block.rows; r++) {
        float *row = block.scores + r * KEYS;
        for (long c = n; c < wide; c++) row[c] = NEVER;
        Lanes top = all(NEVER);
        if (!plain) {
            const Bits here = Bits{} + block.place[r], mine = Bits{} + block.set[r];
            for (long c = 0; c < wide; c += LANES) {
                Bits there, theirs;
                memcpy(&there, held.place + first + c, sizeof there);
                memcpy(&theirs, held.set + first + c, sizeof theirs);
                const Bits back = here - there;
                const Bits kept = near ? (back >= 0) & (back < window) : (back >= window) & ((mine & theirs) == 0);
                store(row + c, kept ? load(row + c) : all(NEVER));
            }
        }
        for (long c = 0; c < wide; c += LANES) {
            const Lanes x = load(row + c);
            top = top > x ? top : x;
        }
        float most = block.most[r];
        for (int i = 0; i < LANES; i++) most = top[i] > most ? top[i] : most;
        if (most > block.most[r]) {
            const Lanes shrink = power(all(block.most[r] - most));
            for (long d = 0; d < width; d += LANES) store(block.sums + r * width + d, load(block.sums + r * width + d) * shrink);
            block.sum[r] *= shrink[0];
            block.most[r] = most;
        }
        const Lanes shift = all(most > NEVER / 2 ? most : 0.f);
        Lanes total = all(0.f);
        for (long c = 0; c < wide; c += LANES) {
            const Lanes p = power(load(row + c) - shift);
            store(row + c, p);
            total += p;
        }
        for (int i = 0; i < LANES; i++) block.sum[r] += total[i];
    }
    for (long d = 0; d < width; d += ACROSS)
        for (int r = 0; r < block.rows; r += DOWN)
            product<true>(block.scores + r * KEYS, KEYS, held.values + first * width + d, width, block.sums + r * width + d, width, n);
}

}  // namespace

// One head: read the groups from .. to, of which the last, `groups`, is the text itself in its window. q, k, v, out:
// first numbers of a head, rows of `size` numbers `*_row` apart. `tokens`: the places of the memberships, sorted by group
// and time, group g at ends[g - 1] .. ends[g]. `sets`: the groups of a token as bits. After the window `out` and `lse` are
// the answer, -inf where nothing is read; before, lse holds the largest scores and `sum` their sums. 0 when done, 1 when
// memory lacks.
extern "C" int grouped_head(const float *q, const float *k, const float *v, float *out, float *lse, float *sum, long q_row,
                            long k_row, long v_row, long out_row, long length, long size, const int32_t *tokens,
                            const int32_t *ends, long groups, const int32_t *sets, long window, float scale, long from,
                            long to) {
    const long width = up(size, ACROSS), room = up(length, ACROSS) + KEYS;
    const long floats = 2 * room * width + 2 * ROWS * width + ROWS * KEYS;
    char *memory = (char *)calloc(floats * sizeof(float) + 2 * room * sizeof(int32_t) + 64, 1);
    if (!memory) return 1;
    float *at = (float *)(memory + 64 - (uintptr_t)memory % 64);
    Held held;
    Block block;
    block.width = width;
    held.keys = at, at += room * width;
    held.values = at, at += room * width;
    block.q = at, at += ROWS * width;
    block.sums = at, at += ROWS * width;
    block.scores = at, at += ROWS * KEYS;
    held.place = (int32_t *)at, held.set = held.place + room;
    for (long t = 0; t < length && from == 0; t++) {
        lse[t] = NEVER, sum[t] = 0.f;
        memset(out + t * out_row, 0, size * sizeof(float));
    }
    const float by = scale * LOG2_E;

    for (long g = from; g < to; g++) {
        const bool near = g == groups;
        const int32_t *mine = near ? nullptr : tokens + (g ? ends[g - 1] : 0);
        const long n = near ? length : ends[g] - (g ? ends[g - 1] : 0);
        const int32_t lower = (int32_t)((1u << (g < 31 ? g : 31)) - 1);  // pairs that share one of these are counted there
        int32_t shared = 0;
        for (long j = 0; j < n; j++) {
            const long t = near ? j : mine[j];
            float *panel = held.keys + j / ACROSS * ACROSS * width + j % ACROSS;
            for (long d = 0; d < size; d++) panel[d * ACROSS] = k[t * k_row + d];
            memcpy(held.values + j * width, v + t * v_row, size * sizeof(float));
            held.place[j] = t, held.set[j] = sets[t] & lower;
            shared |= held.set[j];
        }
        long reach = near ? n : 0;  // keys before this one lie far enough back for the last query of a block
        for (long start = 0; start < n; start += ROWS) {
            const long stop = start + ROWS < n ? start + ROWS : n, rows = stop - start;
            block.rows = up(rows, DOWN);
            for (long r = 0; r < block.rows; r++) {
                const long t = r < rows ? (near ? start + r : mine[start + r]) : -1;
                block.place[r] = t, block.set[r] = t < 0 ? 0 : sets[t] & lower;
                block.most[r] = t < 0 ? NEVER : lse[t], block.sum[r] = t < 0 ? 0.f : sum[t];
                for (long d = 0; d < size; d++) {
                    block.q[r * width + d] = t < 0 ? 0.f : q[t * q_row + d] * by;
                    block.sums[r * width + d] = t < 0 ? 0.f : out[t * out_row + d];
                }
            }
            while (!near && reach < stop && held.place[stop - 1] - held.place[reach] >= window) reach++;
            const long farthest = near ? start - window + 1 : 0, end = stop < reach ? stop : reach;
            for (long first = farthest < 0 ? 0 : farthest / ACROSS * ACROSS; first < end; first += KEYS) {
                const long last = first + KEYS < end ? first + KEYS : end;
                if (near)
                    read<true>(block, held, first, last, window, last - 1 <= start && first > stop - 1 - window);
                else
                    read<false>(block, held, first, last, window, !shared && held.place[start] - held.place[last - 1] >= window);
            }
            for (long r = 0; r < rows; r++) {
                const long t = block.place[r];
                const float by_all = near ? (block.sum[r] > 0.f ? 1.f / block.sum[r] : 0.f) : 1.f;
                for (long d = 0; d < size; d++) out[t * out_row + d] = block.sums[r * width + d] * by_all;
                lse[t] = block.most[r], sum[t] = block.sum[r];
                if (near) lse[t] = block.sum[r] > 0.f ? (block.most[r] + std::log2(block.sum[r])) * LN_2 : -INFINITY;
            }
        }
    }
    free(memory);
    return 0;
}
