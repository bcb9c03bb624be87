// Grouped attention, head by head: online softmax over the keys of each token's groups, then over its window.
// Scores are kept in base 2. Until its window was read, a row of `kept` holds its sum of values, not yet divided.

#include <atomic>
#include <cmath>
#include <cstdlib>

#include "products.h"
#include "threads.h"

#ifdef TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

long up(long n, long to) { return (n + to - 1) / to * to; }

// What a block of queries has read so far, beside room for its scores.
template <class Kind> struct Block {
    typename Kind::Number *q;  // [ROWS, width]
    float *sums, *scores;      // [ROWS, width], [ROWS, KEYS]
    float most[Kind::ROWS], sum[Kind::ROWS], by;  // `by`: what a product is multiplied by to be a score
    int32_t place[Kind::ROWS], set[Kind::ROWS];   // where in the text a row stands; the groups it counts elsewhere
    long width;
    int rows;
};

// Keys and values in the order in which they are read, as `Kind` wants them.
struct Held {
    float *keys, *values;
    int32_t *place, *set;
};

// Read the keys first .. last (first a multiple of PANEL) of those held. `near`: those less than `window` back and none
// of the future; else those at least `window` back that share no group of the row's `set`. `plain`: all of them.
template <class Kind, bool near>
void read(Block<Kind> &block, const Held &held, long first, long last, int window, bool plain) {
    const long width = block.width, n = last - first, wide = up(n, PANEL), padded = up(block.rows, Kind::DOWN);
    Kind::score(block.q, held.keys + first * width / Kind::PER_WORD, block.scores, padded, wide, width);
    const Lanes by = all(block.by);
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
                const Lanes x = kept ? load(row + c) : all(NEVER);
                store(row + c, x);
                top = top > x ? top : x;
            }
        } else {
            for (long c = 0; c < wide; c += LANES) {
                const Lanes x = load(row + c);
                top = top > x ? top : x;
            }
        }
        const float found = largest(top), most = found * block.by;
        if (found > NEVER / 2 && most > block.most[r]) {
            const Lanes shrink = power(all(block.most[r] - most));
            for (long d = 0; d < width; d += LANES) store(block.sums + r * width + d, load(block.sums + r * width + d) * shrink);
            block.sum[r] *= shrink[0];
            block.most[r] = most;
        }
        const Lanes shift = all(block.most[r] > NEVER / 2 ? block.most[r] : 0.f);
        Lanes weights = all(0.f);
        for (long c = 0; c < wide; c += PAIR * LANES) {
            const Lanes x = power(load(row + c) * by - shift), y = power(load(row + c + LANES) * by - shift);
            Kind::put(row, c, x, y);
            weights += x + y;
        }
        block.sum[r] += total(weights);
    }
    Kind::mix(block.scores, held.values + first * width / Kind::PER_WORD, block.sums, padded, wide, width);
}

// What is asked: tensors by their first numbers and the strides of text, head and row, in numbers; `kept` is `out` in
// float32, which it may be itself. `tokens`: the places of the memberships, sorted by text, group and time, group g of
// text b before ends[b * groups + g]. `sets` [texts, length]: the groups of a token as bits. `sinks` first tokens, at most
// KEYS, are read by all. `sink_logits`: see `Begun`. After the
// window `out` and `lse` [texts, heads, length] are the answer, -inf where nothing is read; before, lse holds the largest
// scores and `sum` their sums.
struct Call {
    const void *q, *k, *v;
    void *out;
    float *kept, *lse, *sum;
    const float *sink_logits;
    long q_to[3], k_to[3], v_to[3], out_to[3], kept_to[3];
    const int32_t *tokens, *ends, *sets;
    long texts, heads, repeat, length, size, groups, window, sinks;  // `repeat` heads of q share one of k and v
    float scale;
};

// Room for one head at a time.
template <class Kind> struct Room {
    Held held;
    Block<Kind> block;
    void *memory;

    explicit Room(const Call &call) {
        const int ROWS = Kind::ROWS;
        const long width = up(call.size, PANEL), tokens = up(call.length, PANEL) + KEYS;
        const long packed = tokens * width / Kind::PER_WORD, floats = 2 * packed + 2 * ROWS * width + ROWS * KEYS;
        memory = calloc(floats * sizeof(float) + 2 * tokens * sizeof(int32_t) + 64, 1);
        if (!memory) return;
        float *at = (float *)((char *)memory + 64 - (uintptr_t)memory % 64);
        held.keys = at, at += packed;
        held.values = at, at += packed;
        block.q = (typename Kind::Number *)at, at += ROWS * width;
        block.sums = at, at += ROWS * width;
        block.scores = at, at += ROWS * KEYS;
        held.place = (int32_t *)at, held.set = held.place + tokens;
        block.width = width, block.by = call.scale * LOG2_E;
    }
    ~Room() { free(memory); }
};

// Read the groups from .. to of head h of text b, of which the last, `groups`, is the text itself in its window.
template <class Kind> void head(const Call &call, Room<Kind> &room, long b, long h, long from, long to) {
    typedef typename Kind::Number Number;
    const int ROWS = Kind::ROWS;
    const long length = call.length, size = call.size, groups = call.groups, window = call.window;
    const long *q_to = call.q_to, *k_to = call.k_to, *v_to = call.v_to, *out_to = call.out_to, *kept_to = call.kept_to;
    const Number *q = (const Number *)call.q + b * q_to[0] + h * q_to[1];
    const Number *k = (const Number *)call.k + b * k_to[0] + h / call.repeat * k_to[1];
    const Number *v = (const Number *)call.v + b * v_to[0] + h / call.repeat * v_to[1];
    Number *out = (Number *)call.out + b * out_to[0] + h * out_to[1];
    float *kept = call.kept + b * kept_to[0] + h * kept_to[1];
    float *lse = call.lse + (b * call.heads + h) * length, *sum = call.sum + (b * call.heads + h) * length;
    const int32_t *sets = call.sets + b * length, *ends = call.ends + b * groups;
    Held &held = room.held;
    Block<Kind> &block = room.block;
    const long width = block.width, words = size / Kind::PER_WORD;
    const Begun begun(call.sink_logits, h);
    for (long t = 0; t < length && from == 0; t++) {
        lse[t] = begun.most, sum[t] = begun.sum;
        memset(kept + t * kept_to[2], 0, size * sizeof(float));
    }

    for (long g = from; g < to; g++) {
        const bool near = g == groups;
        const long begin = near || b + g == 0 ? 0 : ends[g - 1], n = near ? length : ends[g] - begin;
        const int32_t *mine = near ? nullptr : call.tokens + begin;
        const int32_t lower = (int32_t)((1u << (g < 31 ? g : 31)) - 1);  // pairs that share one of these are counted there
        int32_t shared = 0;
        for (long j = 0; j < n; j++) {
            const long t = near ? j : mine[j];
            float *panel = held.keys + j / PANEL * PANEL * (width / Kind::PER_WORD) + j % PANEL;
            const Number *key = k + t * k_to[2];
            for (long w = 0; w < words; w++) memcpy(panel + w * PANEL, key + w * Kind::PER_WORD, sizeof(float));
            Kind::value(held.values, j, v + t * v_to[2], size, width);
            held.place[j] = t, held.set[j] = sets[t] & lower;
            shared |= held.set[j];
        }
        long reach = near ? n : 0;  // keys before this one lie far enough back for the last query of a block
        for (long start = 0; start < n; start += ROWS) {
            const long stop = start + ROWS < n ? start + ROWS : n;
            block.rows = stop - start;
            memset(block.q, 0, ROWS * width * sizeof(Number));
            for (long r = 0; r < block.rows; r++) {
                const long t = near ? start + r : mine[start + r];
                block.place[r] = t, block.set[r] = sets[t] & lower;
                block.most[r] = lse[t], block.sum[r] = sum[t];
                memcpy(block.q + r * width, q + t * q_to[2], size * sizeof(Number));
                memcpy(block.sums + r * width, kept + t * kept_to[2], size * sizeof(float));
            }
            while (!near && reach < stop && held.place[stop - 1] - held.place[reach] >= window) reach++;
            const long farthest = near ? start - window + 1 : 0, end = stop < reach ? stop : reach;
            for (long first = farthest < 0 ? 0 : farthest / PANEL * PANEL; first < end; first += KEYS) {
                const long last = first + KEYS < end ? first + KEYS : end;
                if (near)
                    read<Kind, true>(block, held, first, last, window, last - 1 <= start && first > stop - 1 - window);
                else
                    read<Kind, false>(block, held, first, last, window, !shared && held.place[start] - held.place[last - 1] >= window);
            }
            if (near && call.sinks && stop > window) read<Kind, false>(block, held, 0, call.sinks, window, false);
            for (long r = 0; r < block.rows; r++) {
                const long t = block.place[r];
                const float *sums = block.sums + r * width;
                lse[t] = block.most[r], sum[t] = block.sum[r];
                if (near) {
                    const bool some = block.sum[r] > 0.f;
                    lse[t] = some ? (block.most[r] + std::log2(block.sum[r])) * LN_2 : -INFINITY;
                    Kind::finish(out + t * out_to[2], sums, some ? 1.f / block.sum[r] : 0.f, size);
                } else {
                    memcpy(kept + t * kept_to[2], sums, size * sizeof(float));
                }
            }
        }
    }
}

// All heads, each by the next of so many threads that is free; 0 when done, 1 when memory lacks.
template <class Kind> int heads(const Call &call, long from, long to, long threads) {
    std::atomic<long> next{0};
    std::atomic<int> failed{0};
    together(threads, [&](long) {
        Room<Kind> room(call);
        if (!room.memory) failed = 1;
        Kind::begin();
        for (long at; !failed && (at = next++) < call.texts * call.heads;)
            head<Kind>(call, room, at / call.heads, at % call.heads, from, to);
        Kind::end();
    });
    return failed;
}

}  // namespace

// Read the groups from .. to of all heads.
extern "C" int grouped_single(const Call *call, long from, long to, long threads) { return heads<Single>(*call, from, to, threads); }

#ifdef TILES
extern "C" int grouped_half(const Call *call, long from, long to, long threads) { return heads<Half>(*call, from, to, threads); }

// Ask the system for the use of tiles: 0 when this process may.
extern "C" int tiles() { return syscall(SYS_arch_prctl, 0x1023, 18) != 0; }
#endif
