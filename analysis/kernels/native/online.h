// One query head that reads keys and values block by block: an online softmax in float32, whatever the type of what is held.

#pragma once

#include <atomic>
#include <cmath>

#include "lanes.h"
#include "threads.h"

// One query: q and out [heads, size], one after another; lse [heads], -inf where nothing is read, or null; `sink_logits`: see
// `Begun`.
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

// The heads of the query that share head `g` of keys and values, as they meet the keys; nothing is read yet.
template <class Word> void begin(Row *rows, const Query &query, long g) {
    for (long r = 0; r < query.repeat; r++) {
        const typename Word::Number *q = (const typename Word::Number *)query.q + (g * query.repeat + r) * query.size;
        const Begun begun(query.sink_logits, g * query.repeat + r);
        rows[r].most = begun.most, rows[r].weight = begun.sum;
        for (long d = 0; d < query.size; d++) rows[r].q[d] = Word::wide_one(q[d]) * query.scale * LOG2_E, rows[r].sums[d] = 0.f;
    }
}

// What they have read.
template <class Word> void finish(const Row *rows, const Query &query, long g) {
    for (long r = 0; r < query.repeat; r++) {
        const long head = g * query.repeat + r;
        const float weight = rows[r].weight, by = weight > 0.f ? 1.f / weight : 0.f;
        if (query.lse) query.lse[head] = weight > 0.f ? (rows[r].most + std::log2(weight)) * LN_2 : -INFINITY;
        typename Word::Number *out = (typename Word::Number *)query.out + head * query.size;
        for (long d = 0; d < query.size; d++) out[d] = Word::narrow(rows[r].sums[d] * by);
    }
}

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

// `run(from, to)` for all heads of keys and values, shared out over so many threads. 0 when done, 1 when memory lacks.
template <class Run> int shared_out(long heads, long threads, const Run &run) {
    std::atomic<int> failed{0};
    together(threads, [&](long number) {
        if (run(heads * number / threads, heads * (number + 1) / threads)) failed = 1;
    });
    return failed;
}

}  // namespace
