// One query reads some buffers of keys and values: an online softmax over blocks of keys, in float32, whatever the type
// of what is held. A step of generation is bound by the bytes that it reads: a block of keys stays in the cache for all
// query heads that share it, and nothing is written but the answer.

#include <atomic>
#include <cmath>
#include <cstdlib>

#include "lanes.h"
#include "threads.h"

// A buffer: `rows` tokens of every head of keys and values, strides in numbers; `sets`: bits of each token, for a query head
// `set_head` further on. A token with one of the bits `skip` is not read.
struct Part {
    const void *keys, *values, *sets;
    long rows, k_head, k_row, v_head, v_row, set_head, set_bytes;
    int64_t skip;

    bool skips(long at) const {
        if (set_bytes == 1) return ((const uint8_t *)sets)[at] & skip;
        if (set_bytes == 2) return ((const int16_t *)sets)[at] & skip;
        if (set_bytes == 4) return ((const int32_t *)sets)[at] & skip;
        return ((const int64_t *)sets)[at] & skip;
    }
};

// q and out [heads, size], one after another; lse [heads], -inf where nothing is read. `sink_logits`: see `Begun`.
struct Query {
    const void *q;
    void *out;
    float *lse;
    const float *sink_logits;
    long heads, repeat, size;  // `repeat` heads of q share one of keys and values
    float scale;
};

namespace {

const int BLOCK = 64;  // tokens whose scores are known before their values are read

struct Word32 {
    typedef float Number;
    static Lanes wide(const float *at) { return load(at); }
    static float wide_one(float x) { return x; }
    static float narrow(float x) { return x; }
};

struct Word16 {
    typedef uint16_t Number;
    typedef uint16_t Packed __attribute__((vector_size(VECTOR / 2)));
    typedef uint32_t Words __attribute__((vector_size(VECTOR)));
    static Lanes wide(const uint16_t *at) {
        Packed x;
        memcpy(&x, at, sizeof x);
        return (Lanes)(__builtin_convertvector(x, Words) << 16);
    }
    static float wide_one(uint16_t x) {
        const uint32_t bits = (uint32_t)x << 16;
        float y;
        memcpy(&y, &bits, sizeof y);
        return y;
    }
    static uint16_t narrow(float x) { return nearest(x); }
};

// What one query head has read so far, beside room for the scores of a block.
struct Row {
    float *q, *sums, *scores, most, weight;  // [size], [size], [BLOCK]
};

// Ask for the lines of a row of numbers.
template <class Number> void ahead(const Number *row, long size) {
    for (long d = 0; d < size; d += 64 / (long)sizeof(Number)) __builtin_prefetch(row + d);
}

// Scores of the keys at `mine`, `n` of them, for a row.
template <class Word> void score(const Row &row, const typename Word::Number *keys, long stride, const long *mine, int n, long size) {
    const long even = size / LANES * LANES;
    for (int j = 0; j < n; j++) {
        const typename Word::Number *key = keys + mine[j] * stride;
        Lanes dot = all(0.f);
        for (long d = 0; d < even; d += LANES) dot += load(row.q + d) * Word::wide(key + d);
        float sum = total(dot);
        for (long d = even; d < size; d++) sum += row.q[d] * Word::wide_one(key[d]);
        row.scores[j] = sum;
    }
    for (int j = n; j < BLOCK; j++) row.scores[j] = NEVER;
}

// Scores become weights, and what was read before shrinks; returns by how much.
float weigh(Row &row) {
    Lanes top = load(row.scores), weights = all(0.f);
    for (int j = LANES; j < BLOCK; j += LANES) top = top > load(row.scores + j) ? top : load(row.scores + j);
    const float most = largest(top) > row.most ? largest(top) : row.most, shrink = power(all(row.most - most))[0];
    for (int j = 0; j < BLOCK; j += LANES) {
        const Lanes p = power(load(row.scores + j) - all(most));
        store(row.scores + j, p);
        weights += p;
    }
    row.weight = row.weight * shrink + total(weights), row.most = most;
    return shrink;
}

// Add the values at `mine` by their weights. Two sums at once, so that one need not wait for the other.
template <class Word> void mix(Row &row, const typename Word::Number *values, long stride, const long *mine, int n, long size, float shrink) {
    const long even = size / LANES * LANES;
    for (long d = 0; d < even; d += LANES) {
        Lanes one = load(row.sums + d) * shrink, other = all(0.f);
        for (int j = 0; j + 1 < n; j += 2) {
            one += Word::wide(values + mine[j] * stride + d) * row.scores[j];
            other += Word::wide(values + mine[j + 1] * stride + d) * row.scores[j + 1];
        }
        if (n % 2) one += Word::wide(values + mine[n - 1] * stride + d) * row.scores[n - 1];
        store(row.sums + d, one + other);
    }
    for (long d = even; d < size; d++) {
        row.sums[d] *= shrink;
        for (int j = 0; j < n; j++) row.sums[d] += Word::wide_one(values[mine[j] * stride + d]) * row.scores[j];
    }
}

template <class Word> int heads(const Query &query, const Part *parts, long count, long from, long to) {
    typedef typename Word::Number Number;
    const long size = query.size, repeat = query.repeat;
    float *memory = (float *)malloc(repeat * (2 * size + BLOCK) * sizeof(float) + repeat * sizeof(Row));
    if (!memory) return 1;
    Row *rows = (Row *)memory;
    float *room = (float *)(rows + repeat);
    for (long r = 0; r < repeat; r++, room += 2 * size + BLOCK) rows[r] = {room, room + size, room + 2 * size, 0.f, 0.f};
    for (long g = from; g < to; g++) {
        const Number *q = (const Number *)query.q + g * repeat * size;
        Number *out = (Number *)query.out + g * repeat * size;
        for (long r = 0; r < repeat; r++) {
            const Begun begun(query.sink_logits, g * repeat + r);
            rows[r].most = begun.most, rows[r].weight = begun.sum;
            for (long d = 0; d < size; d++) {
                rows[r].q[d] = Word::wide_one(q[r * size + d]) * query.scale * LOG2_E;
                rows[r].sums[d] = 0.f;
            }
        }
        for (const Part *part = parts; part < parts + count; part++) {
            const Number *keys = (const Number *)part->keys + g * part->k_head;
            const Number *values = (const Number *)part->values + g * part->v_head;
            const auto add = [&](Row &row, const long *mine, int n) {
                if (!n) return;
                score<Word>(row, keys, part->k_row, mine, n, size);
                mix<Word>(row, values, part->v_row, mine, n, size, weigh(row));
            };
            long mine[BLOCK];
            for (long first = 0; part->set_head == 0 && first < part->rows; first += BLOCK) {  // the same tokens for all rows
                const long last = first + BLOCK < part->rows ? first + BLOCK : part->rows;
                int n = 0;
                for (long at = first; at < last; at++) {  // what is read next is under way while this is computed
                    ahead(values + at * part->v_row, size);
                    if (at + BLOCK < part->rows) ahead(keys + (at + BLOCK) * part->k_row, size);
                    if (!part->skips(at)) mine[n++] = at;
                }
                for (long r = 0; r < repeat; r++) add(rows[r], mine, n);
            }
            for (long r = 0; part->set_head != 0 && r < repeat; r++) {  // few tokens, others for each row
                const long set = (g * repeat + r) * part->set_head;
                for (long at = 0; at < part->rows;) {
                    int n = 0;
                    for (; at < part->rows && n < BLOCK; at++) {
                        if (part->skips(set + at)) continue;
                        ahead(keys + at * part->k_row, size);
                        ahead(values + at * part->v_row, size);
                        mine[n++] = at;
                    }
                    add(rows[r], mine, n);
                }
            }
        }
        for (long r = 0; r < repeat; r++) {
            const float weight = rows[r].weight, by = weight > 0.f ? 1.f / weight : 0.f;
            query.lse[g * repeat + r] = weight > 0.f ? (rows[r].most + std::log2(weight)) * LN_2 : -INFINITY;
            for (long d = 0; d < size; d++) out[r * size + d] = Word::narrow(rows[r].sums[d] * by);
        }
    }
    free(memory);
    return 0;
}

// All heads of keys and values, shared out over so many threads. 0 when done, 1 when memory lacks.
template <class Word> int all_heads(const Query &query, const Part *parts, long count, long threads) {
    const long every = query.heads / query.repeat;
    std::atomic<int> failed{0};
    together(threads, [&](long number) {
        if (heads<Word>(query, parts, count, every * number / threads, every * (number + 1) / threads)) failed = 1;
    });
    return failed;
}

}  // namespace

extern "C" int one_query_single(const Query *query, const Part *parts, long count, long threads) {
    return all_heads<Word32>(*query, parts, count, threads);
}
extern "C" int one_query_half(const Query *query, const Part *parts, long count, long threads) {
    return all_heads<Word16>(*query, parts, count, threads);
}
