// Statistics of attention rows, and dense attention that takes them on the way: a block of queries, its scores, one pass
// over each row while it is in the cache, its values. Sums may be reordered; infinities and NaN keep their meaning, and a
// row with a score that is no number has numbers that are none. `rows.py` is the same by numba.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "products.h"
#include "threads.h"

namespace {

enum { ENTROPY, LARGEST, RANK, FIRST, WINDOW, DISTANCE, PREVIOUS, INDUCTION, FAR_PEAKS, COLUMNS };
const int BINS = 32, PEAKS = 4;
const long SOME = 256, FEW = 12;  // weights that are taken out, and that are sorted
const float SMALLEST = -87.f;  // e to this is the smallest normal number, near enough

typedef float Half_lanes __attribute__((vector_size(VECTOR / 2)));
typedef double Doubles __attribute__((vector_size(VECTOR)));

long up(long n, long to) { return (n + to - 1) / to * to; }

// What is asked of every row, and the facts of one text: the place of its first real token, which tokens are real, and
// where each last stood before, or -1. `mass` is a little less than what was asked, by half a unit of float32.
struct Asked {
    double mass;
    long window;
    int without_first, more;
};
struct Text {
    long first;
    const uint8_t *real;
    const int64_t *earlier;
};

// e^x for x from SMALLEST to 0; 0 for SMALLEST itself.
inline Lanes exponential(Lanes x) {
    const Lanes below = x < all(SMALLEST) ? all(SMALLEST) : x, shift = all(12582912.f);
    const Lanes k = (below * all(LOG2_E) + shift) - shift;
    const Lanes f = (below - k * all(0.693359375f)) - k * all(-2.12194440e-4f);  // below - k ln 2, exactly
    Lanes p = all(1.98756915e-4f);
    p = p * f + all(1.39819995e-3f);
    p = p * f + all(8.33345191e-3f);
    p = p * f + all(4.16657959e-2f);
    p = p * f + all(0.16666665f);
    p = p * f + all(0.5f);
    p = p * f * f + f + all(1.f);
    const Bits exponent = (__builtin_convertvector(k, Bits) + 127) << 23;
    return below <= all(SMALLEST) ? all(0.f) : p * (Lanes)exponent;
}

// Call `take(lanes, at)` for the numbers begin .. stop of a row; the lanes beyond are `other`.
template <class Take> inline void each(const float *row, long begin, long stop, float other, const Take &take) {
    long j = begin;
    for (; j + LANES <= stop; j += LANES) take(load(row + j), j);
    if (j >= stop) return;
    Lanes x = all(other);
    memcpy(&x, row + j, (stop - j) * sizeof(float));
    take(x, j);
}

long counted(Bits count) {
    long sum = 0;
    for (int i = 0; i < LANES; i++) sum += count[i];
    return sum;
}

float sum_of(const float *row, long begin, long stop) {
    Lanes sum = all(0.f);
    each(row, begin, stop, 0.f, [&](Lanes x, long) { sum += x; });
    return total(sum);
}

long visible(const float *row, long begin, long stop) {
    Bits count = Bits{};
    each(row, begin, stop, -INFINITY, [&](Lanes x, long) { count -= x > all(-INFINITY); });
    return counted(count);
}

// What a row sums to: its weights e^d with d = s - max, weights times d, weights times the tokens back to the query; and
// how many are 1, and the largest logit.
struct Sums {
    float weights = 0.f, turned = 0.f, back = 0.f, most = 0.f;
    long ones = 0;
};

// In place e^(s - max) of the keys begin .. stop of a row, zeros before them.
Sums weigh(float *row, long begin, long stop, long query) {
    Sums sums;
    Lanes top = all(-INFINITY);
    each(row, begin, stop, -INFINITY, [&](Lanes x, long) { top = top > x ? top : x; });
    const float most = largest(top);
    std::fill(row, row + begin, 0.f);
    if (most == -INFINITY) {
        // hidden altogether, unless a number that is none was passed over
        bool none = false;
        for (long j = begin; j < stop; j++) none |= row[j] != row[j];
        std::fill(row + begin, row + stop, none ? NAN : 0.f);
        sums.weights = none ? NAN : 0.f;
        return sums;
    }
    Lanes weights = all(0.f), turned = all(0.f), far = all(0.f), back = all(0.f);
    Bits ones = Bits{};
    for (int i = 0; i < LANES; i++) back[i] = query - begin - i;
    each(row, begin, stop, -INFINITY, [&](Lanes x, long j) {
        const Lanes d = x - all(most), w = exponential(d);
        if (j + LANES <= stop)
            store(row + j, w);
        else
            memcpy(row + j, &w, (stop - j) * sizeof(float));
        weights += w;
        turned += w * (d < all(SMALLEST) ? all(SMALLEST) : d);
        far += w * back;
        back -= all(LANES);
        ones -= d == all(0.f);
    });
    sums.most = most, sums.weights = total(weights), sums.turned = total(turned), sums.back = total(far), sums.ones = counted(ones);
    return sums;
}

// The sum in float32, and the number, of the weights of a row that are at least `least`.
struct Above {
    float sum;
    long count;
};
Above above(const float *row, long begin, long stop, float least) {
    Lanes sum = all(0.f);
    Bits count = Bits{};
    each(row, begin, stop, -1.f, [&](Lanes x, long) {
        const Bits fits = x >= all(least);
        sum += fits ? x : all(0.f);
        count -= fits;
    });
    return {total(sum), counted(count)};
}

float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

double sum_of(Doubles x) {
    double sum = 0.;
    for (int i = 0; i < LANES / 2; i++) sum += x[i];
    return sum;
}

// Between which two numbers, by their bits, the least of the largest weights lies that reach a target: the sums of the
// weights from each of them on, and how many they are.
struct Between {
    uint32_t low, high;
    float at_low, at_high;
    long reach, over;
};

// Bring the two nearer until at most `few` weights lie between them, or none can; `middle` is tried first. A positive
// float32 grows with its bits read as a whole number.
void narrow(Between &at, const float *row, long begin, long stop, float target, long few, uint32_t middle) {
    const uint32_t lowest = at.low, highest = at.high;
    double step = 1 << 20;  // an eighth of an octave
    for (int turn = 0; at.reach - at.over > few && at.high - at.low > 1; turn++) {
        middle = std::min(std::max(middle, at.low + 1), at.high - 1);
        const Above result = above(row, begin, stop, of_bits(middle));
        if (result.sum >= target)
            at.low = middle, at.at_low = result.sum, at.reach = result.count;
        else
            at.high = middle, at.at_high = result.sum, at.over = result.count;
        const double wide = at.high - at.low, beside = wide * few / 3 / std::max(1L, at.reach - at.over);
        double next = at.low + wide / 2;
        if (at.low == lowest || at.high == highest)  // in longer and longer steps
            next = at.low == lowest ? at.high - step : at.low + step, step *= 4;
        else if (turn % 4 < 3)  // on a line between both, a little to one side and then to the other
            next = at.low + wide * (at.at_low - target) / (at.at_low - at.at_high) + (turn % 2 ? beside : -beside);
        middle = std::max(next, 1.);
    }
}

// How many of `some`, from the largest on, bring a sum from `reached` to `target`; those that are 0 bring nothing.
long until(std::vector<float> &some, double reached, double target) {
    std::sort(some.begin(), some.end(), [](float x, float y) { return x > y; });
    long count = 0;
    for (float weight : some) {
        if (reached >= target || weight <= 0.f) break;
        reached += weight, count++;
    }
    return count;
}

// What a thread keeps from row to row: room, and the logit of the least weight counted in the row before.
struct Scratch {
    std::vector<float> copy, some, rest;
    float last = 0.f;
};

// The fewest weights, from the largest on, that hold `mass` of the row. Two numbers are looked for between which few
// weights lie, in sums of float32; those between are taken out and counted, and sums of float64 say whether the target is
// among them. `seen` keys are visible.
long rank_of(const float *row, long begin, long stop, long seen, double mass, const Sums &sums, Scratch &scratch) {
    if (sums.ones == seen) return (long)std::ceil(mass * sums.ones);  // all alike
    std::vector<float> &some = scratch.some;
    const uint32_t beyond = 0x3f800001u;  // after 1
    Between at = {0, beyond, sums.weights, 0.f, stop - begin, 0};
    narrow(at, row, begin, stop, mass * sums.weights, SOME, to_bits(std::exp(std::min(0.f, scratch.last - sums.most))));
    scratch.last = std::log(std::max(of_bits(at.low), 1e-30f)) + sums.most;
    const Lanes least = all(of_bits(at.low)), most = all(of_bits(at.high));
    Doubles whole = Doubles{}, upper = Doubles{};
    some.resize(at.reach - at.over + LANES);
    long inside = 0;
    each(row, begin, stop, 0.f, [&](Lanes x, long) {
        const Bits below = x < most;
        const Lanes over = below ? all(0.f) : x;
        Half_lanes every[2], larger[2];
        memcpy(every, &x, sizeof x), memcpy(larger, &over, sizeof over);
        for (int half = 0; half < 2; half++) {
            whole += __builtin_convertvector(every[half], Doubles);
            upper += __builtin_convertvector(larger[half], Doubles);
        }
        const Bits fits = below & (x >= least) & (x > all(0.f));
        if (any(fits)) inside += pick(some.data() + inside, x, fits);
    });
    some.resize(inside);
    const double target = mass * sum_of(whole), reached = sum_of(upper);
    double between = 0.;
    for (float weight : some) between += weight;
    if (!(reached < target && reached + between >= target)) {
        // the sums of float32 were a little off
        some.assign(row + begin, row + stop);
        return until(some, 0., target);
    }
    Between inner = {at.low, at.high, (float)between, 0.f, inside, 0};
    narrow(inner, some.data(), 0, inside, target - reached, FEW, at.low + (at.high - at.low) / 2);
    double larger = reached, few = 0.;
    std::vector<float> &rest = scratch.rest;
    long count = at.over;
    rest.clear();
    for (float weight : some) {
        if (weight >= of_bits(inner.high))
            larger += weight, count++;
        else if (weight >= of_bits(inner.low))
            rest.push_back(weight), few += weight;
    }
    // as above, of fewer weights
    if (!(larger < target && larger + few >= target)) return at.over + until(some, reached, target);
    return count + until(rest, larger, target);
}

// Sum of the PEAKS largest weights: the largest of every lane, then the largest of these.
float strongest(const float *row, long begin, long stop) {
    Lanes best[PEAKS] = {};
    each(row, begin, stop, 0.f, [&](Lanes x, long) {
#pragma GCC unroll 4
        for (Lanes &place : best) {
            const Lanes smaller = place < x ? place : x;
            place = place > x ? place : x;
            x = smaller;
        }
    });
    float of_lanes[PEAKS * LANES], sum = 0.f;
    memcpy(of_lanes, best, sizeof best);
    std::partial_sort(of_lanes, of_lanes + PEAKS, of_lanes + PEAKS * LANES, [](float x, float y) { return x > y; });
    for (int i = 0; i < PEAKS; i++) sum += of_lanes[i];
    return sum;
}

// Attention to what followed earlier copies of the query's token; NaN where there is none.
double after_itself(const float *row, long query, long begin, const int64_t *earlier) {
    double sum = 0.;
    bool some = false;
    for (long place = earlier[query]; place >= begin - 1 && place >= 0; place = earlier[place])
        if (place + 1 < query && place + 1 >= begin) sum += row[place + 1], some = true;
    return some ? sum : NAN;
}

// One query's row of logits, keys 0 .. keys: overwritten by weights, zeros after the query -> their sum. `numbers`
// [COLUMNS], NaN where not defined; `distance` [BINS] is added to: bin 0 the token itself, b 2^(b-1) to 2^b tokens back.
// `hidden`: -inf stands where a key is not visible.
float measure(float *row, long keys, long query, const Asked &asked, const Text &text, bool hidden, double *numbers, double *distance, Scratch &scratch) {
    const long stop = std::min(keys, query + 1), first = text.first, near = std::max(first + 1, query - asked.window + 1);
    std::fill(row + stop, row + keys, 0.f);
    std::fill(numbers, numbers + COLUMNS, NAN);
    const long begin = asked.without_first ? std::min(first + 1, stop) : 0;
    long seen = stop - begin, far = std::max(0L, std::min(near, stop) - first - 1);
    if (hidden) seen = visible(row, begin, stop), far = far ? visible(row, first + 1, std::min(near, stop)) : 0;
    if (asked.without_first) scratch.copy.assign(row, row + stop);
    Sums sums = weigh(row, 0, stop, query);
    const float whole = sums.weights;
    if (!text.real[query] || !(whole > 0.f)) return whole;
    const float sink = row[first] / whole;
    const float *weights = row;
    if (asked.without_first) {
        sums = weigh(scratch.copy.data(), begin, stop, query), weights = scratch.copy.data();
        numbers[FIRST] = sink;
        if (!(sums.weights > 0.f)) return whole;
    }
    const double share = 1. / sums.weights;
    numbers[ENTROPY] = std::log((double)sums.weights) - sums.turned * share;
    numbers[LARGEST] = share;
    numbers[RANK] = rank_of(weights, begin, stop, seen, asked.mass, sums, scratch);
    numbers[FIRST] = sink;
    numbers[WINDOW] = sum_of(weights, std::max(0L, query - asked.window + 1), stop) * share;
    numbers[DISTANCE] = sums.back * share;
    if (!asked.more) return whole;
    if (query > begin && text.real[query - 1]) numbers[PREVIOUS] = weights[query - 1] * share;
    numbers[INDUCTION] = after_itself(weights, query, begin, text.earlier) * share;
    if (far > 0) numbers[FAR_PEAKS] = strongest(weights, first + 1, std::min(near, stop)) * share - (double)std::min<long>(PEAKS, far) / seen;
    distance[0] += query < stop ? weights[query] * share : 0.;
    for (long low = 1, bin = 1; low <= query; low *= 2, bin++)
        distance[bin] += sum_of(weights, std::max(0L, query - 2 * low + 1), std::min(stop, query - low + 1)) * share;
    return whole;
}

// What is asked of a layer: tensors by their first numbers and the strides of text, head and row, in numbers. `first`
// [texts], `real` and `earlier` [texts, length]; added to: `sums` and `counts` [heads, COLUMNS], `distance` [heads, BINS].
// `every` [texts, length, COLUMNS], or null: the numbers of every query of `watched`, a head.
struct Layer {
    const void *q, *k, *v;
    void *out;
    long q_to[3], k_to[3], v_to[3], out_to[3];
    const int64_t *first;
    const uint8_t *real;
    const int64_t *earlier;
    double *sums, *counts, *distance, *every;
    long watched, texts, heads, repeat, length, size;
    Asked asked;
    float scale;
};

// Room for one head at a time.
template <class Kind> struct Room {
    float *keys, *values, *scores, *rows, *sums;
    typename Kind::Number *q;
    Scratch scratch;
    void *memory;
    long width, padded;

    explicit Room(const Layer &layer) {
        width = up(layer.size, PANEL), padded = up(layer.length, PANEL) + KEYS;
        const long packed = padded * width / Kind::PER_WORD;
        const long floats = 2 * packed + Kind::ROWS * (KEYS + padded + 2 * width);
        memory = calloc(floats * sizeof(float) + 64, 1);
        if (!memory) return;
        float *at = (float *)((char *)memory + 64 - (uintptr_t)memory % 64);
        keys = at, at += packed;
        values = at, at += packed;
        scores = at, at += Kind::ROWS * KEYS;
        rows = at, at += Kind::ROWS * padded;
        sums = at, at += Kind::ROWS * width;
        q = (typename Kind::Number *)at;
    }
    ~Room() { free(memory); }
};

template <class Kind> void head(const Layer &layer, Room<Kind> &room, long b, long h) {
    typedef typename Kind::Number Number;
    const int ROWS = Kind::ROWS;
    const long length = layer.length, size = layer.size, width = room.width, words = size / Kind::PER_WORD;
    const Number *q = (const Number *)layer.q + b * layer.q_to[0] + h * layer.q_to[1];
    const Number *k = (const Number *)layer.k + b * layer.k_to[0] + h / layer.repeat * layer.k_to[1];
    const Number *v = (const Number *)layer.v + b * layer.v_to[0] + h / layer.repeat * layer.v_to[1];
    Number *out = (Number *)layer.out + b * layer.out_to[0] + h * layer.out_to[1];
    const Text text = {layer.first[b], layer.real + b * length, layer.earlier + b * length};
    double *sums = layer.sums + h * COLUMNS, *counts = layer.counts + h * COLUMNS, numbers[COLUMNS];
    for (long j = 0; j < length; j++) {
        float *panel = room.keys + j / PANEL * PANEL * (width / Kind::PER_WORD) + j % PANEL;
        const Number *key = k + j * layer.k_to[2];
        for (long w = 0; w < words; w++) memcpy(panel + w * PANEL, key + w * Kind::PER_WORD, sizeof(float));
        Kind::value(room.values, j, v + j * layer.v_to[2], size, width);
    }
    for (long start = 0; start < length; start += ROWS) {
        const long stop = std::min(start + ROWS, length), rows = stop - start, padded = up(rows, Kind::DOWN);
        memset(room.q, 0, ROWS * width * sizeof(Number));
        memset(room.sums, 0, ROWS * width * sizeof(float));
        for (long r = 0; r < rows; r++) memcpy(room.q + r * width, q + (start + r) * layer.q_to[2], size * sizeof(Number));
        for (long first = 0; first < stop; first += KEYS) {
            const long wide = up(std::min<long>(KEYS, stop - first), PANEL);
            Kind::score(room.q, room.keys + first * width / Kind::PER_WORD, room.scores, padded, wide, width);
            for (long r = 0; r < rows; r++)
                for (long c = 0; c < wide; c += LANES)
                    store(room.rows + r * room.padded + first + c, load(room.scores + r * KEYS + c) * all(layer.scale));
        }
        float totals[Kind::ROWS];
        for (long r = 0; r < rows; r++) {
            const long query = start + r;
            totals[r] = measure(room.rows + r * room.padded, up(stop, PANEL), query, layer.asked, text, false, numbers, layer.distance + h * BINS, room.scratch);
            for (int c = 0; c < COLUMNS; c++)
                if (numbers[c] == numbers[c]) sums[c] += numbers[c], counts[c] += 1.;
            if (layer.every && h == layer.watched) memcpy(layer.every + (b * length + query) * COLUMNS, numbers, sizeof numbers);
        }
        for (long first = 0; first < stop; first += KEYS) {
            const long wide = up(std::min<long>(KEYS, stop - first), PANEL);
            for (long r = 0; r < padded; r++)
                for (long c = 0; c < wide; c += PAIR * LANES) {
                    const float *at = room.rows + r * room.padded + first + c;
                    if (r < rows)
                        Kind::put(room.scores + r * KEYS, c, load(at), load(at + LANES));
                    else
                        Kind::put(room.scores + r * KEYS, c, all(0.f), all(0.f));
                }
            Kind::mix(room.scores, room.values + first * width / Kind::PER_WORD, room.sums, padded, wide, width);
        }
        for (long r = 0; r < rows; r++) Kind::finish(out + (start + r) * layer.out_to[2], room.sums + r * width, 1.f / totals[r], size);
    }
}

// All heads, each with all its texts by the next of so many threads that is free; 0 when done, 1 when memory lacks.
template <class Kind> int heads(const Layer &layer, long threads) {
    std::atomic<long> next{0};
    std::atomic<int> failed{0};
    together(threads, [&](long) {
        Room<Kind> room(layer);
        if (!room.memory) failed = 1;
        Kind::begin();
        for (long h; !failed && (h = next++) < layer.heads;)
            for (long b = 0; b < layer.texts; b++) head<Kind>(layer, room, b, h);
        Kind::end();
    });
    return failed;
}

}  // namespace

extern "C" {

int measured_single(const Layer *layer, long threads) { return heads<Single>(*layer, threads); }

#ifdef TILES
int measured_half(const Layer *layer, long threads) { return heads<Half>(*layer, threads); }
#endif

// One head's queries start .. start + n of a text, over scaled logits [n, keys]: as `measure_rows` of `rows.py`.
void measured_rows(float *scores, long n, long keys, long start, const Asked *asked, long first, const uint8_t *real, const int64_t *earlier, double *numbers, float *totals, double *distance) {
    const Text text = {first, real, earlier};
    Scratch scratch;
    for (long r = 0; r < n; r++)
        totals[r] = measure(scores + r * keys, keys, start + r, *asked, text, true, numbers + r * COLUMNS, distance, scratch);
}

// Entropy and largest probability of such rows: what a temperature changes. NaN where all is hidden.
void measured_sharpness(float *scores, long n, long keys, long start, double *entropy, double *most) {
    for (long r = 0; r < n; r++) {
        const Sums sums = weigh(scores + r * keys, 0, std::min(keys, start + r + 1), start + r);
        entropy[r] = sums.weights > 0.f ? std::log((double)sums.weights) - sums.turned / (double)sums.weights : NAN;
        most[r] = sums.weights > 0.f ? 1. / sums.weights : NAN;
    }
}
}
