// Vectors of float32 as wide as the processor has them, and what is computed in them.

#pragma once

#include <cstdint>
#include <cstring>

#ifdef __AVX512F__
#include <immintrin.h>
#define VECTOR 64
#else
#define VECTOR 32
#endif

typedef float Lanes __attribute__((vector_size(VECTOR)));
typedef int32_t Bits __attribute__((vector_size(VECTOR)));

const int LANES = VECTOR / 4;
const float NEVER = -1e30f;  // score of a pair that is not read
const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

// What an online softmax has read before its first key: nothing, or the learned sink of a head, a logit of its own in
// every softmax that belongs to no token and so has no value. `sink_logits` [heads], null without.
struct Begun {
    float most = NEVER, sum = 0.f;  // the largest score in base 2, and the sum of powers of two less it

    Begun(const float *sink_logits, long head) {
        if (sink_logits) most = sink_logits[head] * LOG2_E, sum = 1.f;
    }
};

inline Lanes all(float x) { return x - Lanes{}; }
inline Lanes load(const float *at) { Lanes x; memcpy(&x, at, sizeof x); return x; }
inline void store(float *at, Lanes x) { memcpy(at, &x, sizeof x); }

#ifdef __AVX512F__
inline float largest(Lanes x) { return _mm512_reduce_max_ps((__m512)x); }
inline float total(Lanes x) { return _mm512_reduce_add_ps((__m512)x); }
#else
inline float largest(Lanes x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}
inline float total(Lanes x) {
    float sum = 0.f;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}
#endif

// Whether any lane of a comparison holds.
inline bool any(Bits x) {
#ifdef __AVX512F__
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x);
#else
    int32_t some = 0;
    for (int i = 0; i < LANES; i++) some |= x[i];
    return some;
#endif
}

// Write the lanes that fit one behind the other -> how many. Room for all is needed.
inline long pick(float *at, Lanes x, Bits fits) {
#ifdef __AVX512F__
    const __mmask16 lanes = _mm512_test_epi32_mask((__m512i)fits, (__m512i)fits);
    _mm512_mask_compressstoreu_ps(at, lanes, (__m512)x);
    return __builtin_popcount(lanes);
#else
    long count = 0;
    for (int i = 0; i < LANES; i++)
        if (fits[i]) at[count++] = x[i];
    return count;
#endif
}

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

// A number as bfloat16, to the nearest, ties to even.
inline uint16_t nearest(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
