// Queries of a text that each read units of keys of their own choice beside the newest and the first keys: for each an
// online softmax in float32, whatever the type of what is held. A query gathers nothing: it reads its keys where they are.

#include <cstdlib>

#include "online.h"

// Strides of text, head and row in numbers. `chosen` [texts, selections, length, count], the units of a query, -1 for none;
// neighbouring heads share a selection. Queries stand behind `past` others. `sink_logits`: see `Begun`.
struct Call {
    const void *q, *k, *v;
    void *out;
    const int32_t *chosen;
    const float *sink_logits;
    long q_to[3], k_to[3], v_to[3], out_to[3];
    long texts, heads, repeat, selections, length, past, size, count, unit, window, sinks;
    float scale;
};

namespace {

template <class Word> int head(const Call &call, long b, long h) {
    typedef typename Word::Number Number;
    const long size = call.size, unit = call.unit;
    float *memory = (float *)malloc((2 * size + BLOCK) * sizeof(float));
    if (!memory) return 1;
    Row row = {memory, memory + size, memory + 2 * size, 0.f, 0.f};
    const Number *keys = (const Number *)call.k + b * call.k_to[0] + h / call.repeat * call.k_to[1];
    const Number *values = (const Number *)call.v + b * call.v_to[0] + h / call.repeat * call.v_to[1];
    const long selection = b * call.selections + h * call.selections / call.heads;
    const int32_t *chosen = call.chosen + selection * call.length * call.count;
    for (long i = 0; i < call.length; i++, chosen += call.count) {
        const long at = call.past + i;
        const Query query = {
            (const Number *)call.q + b * call.q_to[0] + h * call.q_to[1] + i * call.q_to[2],
            (Number *)call.out + b * call.out_to[0] + h * call.out_to[1] + i * call.out_to[2],
            nullptr, call.sink_logits ? call.sink_logits + h : nullptr, 1, 1, size, call.scale,
        };
        begin<Word>(&row, query, 0);
        long mine[BLOCK];
        int n = 0;
        const auto add = [&] {
            if (!n) return;
            score<Word>(row, keys, call.k_to[2], mine, n, size);
            mix<Word>(row, values, call.v_to[2], mine, n, size, weigh(row));
            n = 0;
        };
        const auto read = [&](long from, long to) {
            for (long key = from; key < to; key++) {
                mine[n++] = key;
                if (n == BLOCK) add();
            }
        };
        // The window, and the own unit where that begins before it.
        long near = at - call.window + 1, own = unit > 1 ? at / unit * unit : at;
        near = near < own ? near : own;
        near = near > 0 ? near : 0;
        const long first = call.sinks < near ? call.sinks : near;
        read(near, at + 1);
        read(0, first);
        for (long c = 0; c < call.count; c++) {
            if (chosen[c] < 0) continue;
            const long from = chosen[c] * unit, to = from + unit;
            read(from > first ? from : first, to < near ? to : near);
        }
        add();
        finish<Word>(&row, query, 0);
    }
    free(memory);
    return 0;
}

template <class Word> int all_heads(const Call &call, long threads) {
    std::atomic<long> next{0};
    std::atomic<int> failed{0};
    together(threads, [&](long) {
        for (long at; !failed && (at = next++) < call.texts * call.heads;)
            if (head<Word>(call, at / call.heads, at % call.heads)) failed = 1;
    });
    return failed;
}

}  // namespace

extern "C" int chosen_single(const Call *call, long threads) { return all_heads<Word32>(*call, threads); }
extern "C" int chosen_half(const Call *call, long threads) { return all_heads<Word16>(*call, threads); }
