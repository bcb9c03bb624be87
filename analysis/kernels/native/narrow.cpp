// One query reads keys and values that are packed in few bits, and the newest ones behind them as they are. A block of rows
// becomes numbers once, in the nearest cache, for all query heads that share it; what is read from memory are the bytes.

#include <cstdlib>

#include "online.h"

// The keys or the values of some heads: `packed` rows of `bytes` bytes, then `tail_rows` numbers as they are; from head to head
// `code_head` bytes, `step_head` and `tail_head` numbers. `steps` and `lows` are float16: of STEPS one for `group` numbers of a
// row, of COLUMNS a row of them for `group` rows; of FLOATS and DIRECTIONS `steps` has the factor or length of a row. `turned`:
// the query as it meets packed directions, float32 [heads, size], or null.
struct Side {
    const uint8_t *codes;
    const uint16_t *steps, *lows;
    const float *levels, *turned;
    const void *tail;
    long kind, bits, group, packed, bytes, code_head, step_head, tail_rows, tail_head;
};

namespace {

enum Kind { STEPS, COLUMNS, FLOATS, DIRECTIONS };

float scaled(uint32_t bits, float by, uint32_t sign) {
    float x;
    memcpy(&x, &bits, sizeof x);
    x *= by;
    memcpy(&bits, &x, sizeof x);
    bits |= sign;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// The number that a float16, and an e4m3, stands for: its exponent moved to where float32 has it, by a product, which is exact
// for the smallest ones too.
float half(uint16_t x) { return scaled((uint32_t)(x & 0x7fff) << 13, 0x1p112f, (uint32_t)(x & 0x8000) << 16); }
float eighth(uint8_t x) { return scaled((uint32_t)(x & 0x7f) << 20, 0x1p120f, (uint32_t)(x & 0x80) << 24); }

// Add the numbers of a plane, `width` bits each, `times` over -> the byte behind it. `bits.pack` says how it lies.
template <int width> const uint8_t *plane(const uint8_t *at, float *row, long size, float times) {
    const long run = (size * width + 7) / 8;
    for (int place = 0; place < 8 / width; place++) {
        const long from = run * place, count = from + run < size ? run : size - from;
        for (long i = 0; i < count; i++) row[from + i] += times * (float)(at[i] >> width * place & (1 << width) - 1);
    }
    return at + run;
}

// Rows of one head as numbers.
struct Rows {
    const Side &side;
    const uint8_t *codes;
    const uint16_t *steps, *lows;
    long size, group = -1;
    float *step, *low;  // [size], of the group of rows that was read last

    Rows(const Side &side, long head, long size, float *room)
        : side(side), codes(side.codes + head * side.code_head), steps(side.steps + head * side.step_head),
          lows(side.lows + head * side.step_head), size(size), step(room), low(room + size) {}

    void read(long at, float *row) {
        const uint8_t *code = codes + at * side.bytes;
        if (side.kind == FLOATS) {
            const float factor = half(steps[at]);
            for (long d = 0; d < size; d++) row[d] = eighth(code[d]) * factor;
            return;
        }
        memset(row, 0, size * sizeof(float));
        if (side.bits == 8) plane<8>(code, row, size, 1.f);
        if (side.bits == 4) plane<4>(code, row, size, 1.f);
        if (side.bits < 4) code = plane<2>(code, row, size, 1.f);
        if (side.bits == 3) plane<1>(code, row, size, 4.f);
        if (side.kind == DIRECTIONS) return direction(half(steps[at]), row);
        if (side.kind == COLUMNS) {
            if (at / side.group != group) {
                group = at / side.group;
                for (long d = 0; d < size; d++) step[d] = half(steps[group * size + d]), low[d] = half(lows[group * size + d]);
            }
            for (long d = 0; d < size; d++) row[d] = row[d] * step[d] + low[d];
            return;
        }
        const long groups = (size + side.group - 1) / side.group;
        for (long i = 0; i < groups; i++) {
            const long end = (i + 1) * side.group < size ? (i + 1) * side.group : size;
            const float by = half(steps[at * groups + i]), from = half(lows[at * groups + i]);
            for (long d = i * side.group; d < end; d++) row[d] = row[d] * by + from;
        }
    }

    // Numbers of levels become levels, together of this length.
    void direction(float length, float *row) const {
        float sum = 0.f;
        long d = 0;
#ifdef __AVX512F__
        const __m512 levels = _mm512_loadu_ps(side.levels);
        Lanes sums = all(0.f);
        for (; d + LANES <= size; d += LANES) {
            const Lanes x = (Lanes)_mm512_permutexvar_ps(_mm512_cvtps_epi32((__m512)load(row + d)), levels);
            sums += x * x;
            store(row + d, x);
        }
        sum = total(sums);
#endif
        for (; d < size; d++) row[d] = side.levels[(int)row[d]], sum += row[d] * row[d];
        const float by = length / std::sqrt(sum);
        for (d = 0; d < size; d++) row[d] *= by;
    }
};

template <class Word> int some_heads(const Query &query, const Side &keys, const Side &values, long from, long to) {
    typedef typename Word::Number Number;
    const long size = query.size, repeat = query.repeat, total_rows = keys.packed + keys.tail_rows;
    const size_t numbers = repeat * (3 * size + BLOCK) + 2 * BLOCK * size + 4 * size;
    float *memory = (float *)malloc(numbers * sizeof(float) + repeat * sizeof(Row));
    if (!memory) return 1;
    Row *rows = (Row *)memory;
    float *plain = (float *)(rows + repeat), *turned = plain + repeat * size, *room = turned + repeat * size;
    for (long r = 0; r < repeat; r++, room += size + BLOCK) rows[r] = {plain, room, room + size, 0.f, 0.f};
    float *key = room, *value = key + BLOCK * size, *steps = value + BLOCK * size;
    long mine[BLOCK];
    for (long j = 0; j < BLOCK; j++) mine[j] = j;
    for (long g = from; g < to; g++) {
        for (long r = 0; r < repeat; r++) rows[r].q = plain + r * size;
        begin<Word>(rows, query, g);
        for (long at = 0; at < repeat * size; at++)
            turned[at] = keys.turned ? keys.turned[g * repeat * size + at] * query.scale * LOG2_E : plain[at];
        Rows of_keys(keys, g, size, steps), of_values(values, g, size, steps + 2 * size);
        const auto read = [&](Rows &packed, const Side &side, long at, float *row) {
            if (at < side.packed) return packed.read(at, row);
            const Number *tail = (const Number *)side.tail + g * side.tail_head + (at - side.packed) * size;
            for (long d = 0; d < size; d++) row[d] = Word::wide_one(tail[d]);
        };
        for (long first = 0, last; first < total_rows; first = last) {
            last = first + BLOCK < total_rows ? first + BLOCK : total_rows;
            if (first < keys.packed && last > keys.packed) last = keys.packed;
            const int n = last - first;
            for (int j = 0; j < n; j++) {
                read(of_keys, keys, first + j, key + j * size);
                read(of_values, values, first + j, value + j * size);
            }
            for (long r = 0; r < repeat; r++) {
                rows[r].q = (first < keys.packed ? turned : plain) + r * size;
                score<Word32>(rows[r], key, size, mine, n, size);
                mix<Word32>(rows[r], value, size, mine, n, size, weigh(rows[r]));
            }
        }
        finish<Word>(rows, query, g);
    }
    free(memory);
    return 0;
}

template <class Word> int all_heads(const Query &query, const Side &keys, const Side &values, long threads) {
    return shared_out(query.heads / query.repeat, threads, [&](long from, long to) {
        return some_heads<Word>(query, keys, values, from, to);
    });
}

}  // namespace

extern "C" int narrow_single(const Query *query, const Side *keys, const Side *values, long threads) {
    return all_heads<Word32>(*query, *keys, *values, threads);
}
extern "C" int narrow_half(const Query *query, const Side *keys, const Side *values, long threads) {
    return all_heads<Word16>(*query, *keys, *values, threads);
}
