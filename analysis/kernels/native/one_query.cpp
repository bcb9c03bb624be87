// One query reads some buffers of keys and values: an online softmax over blocks of keys, in float32, whatever the type
// of what is held. A step of generation is bound by the bytes that it reads: a block of keys stays in the cache for all
// query heads that share it, and nothing is written but the answer.

#include <cstdlib>

#include "online.h"

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

namespace {

template <class Word> int heads(const Query &query, const Part *parts, long count, long from, long to) {
    typedef typename Word::Number Number;
    const long size = query.size, repeat = query.repeat;
    float *memory = (float *)malloc(repeat * (2 * size + BLOCK) * sizeof(float) + repeat * sizeof(Row));
    if (!memory) return 1;
    Row *rows = (Row *)memory;
    float *room = (float *)(rows + repeat);
    for (long r = 0; r < repeat; r++, room += 2 * size + BLOCK) rows[r] = {room, room + size, room + 2 * size, 0.f, 0.f};
    for (long g = from; g < to; g++) {
        begin<Word>(rows, query, g);
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
        finish<Word>(rows, query, g);
    }
    free(memory);
    return 0;
}

template <class Word> int all_heads(const Query &query, const Part *parts, long count, long threads) {
    return shared_out(query.heads / query.repeat, threads, [&](long from, long to) {
        return heads<Word>(query, parts, count, from, to);
    });
}

}  // namespace

extern "C" int one_query_single(const Query *query, const Part *parts, long count, long threads) {
    return all_heads<Word32>(*query, parts, count, threads);
}
extern "C" int one_query_half(const Query *query, const Part *parts, long count, long threads) {
    return all_heads<Word16>(*query, parts, count, threads);
}
