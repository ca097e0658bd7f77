/* Standard normals, a block at a time: SplitMix64 of a counter, then Box and Muller. Twin of core/noise.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define ALIGNED __attribute__((aligned(64)))
#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define LOW UINT64_C(0xFFFFFFFF)

enum { BLOCK = 128, PAIRS = BLOCK / 2, GROUP = 8, GROUPS = PAIRS / GROUP };   /* elements; pairs of them, in groups */

/* A number for each pair. Within a group they stand in an order of their own: `hash` makes it, `interleave` ends it. */
typedef union {
    uint64_t word[PAIRS / 2];
    uint32_t bits[PAIRS];
    float real[PAIRS];
} Lanes;

typedef union {
    uint64_t pair[PAIRS];
    float real[BLOCK];
} Normals;

static const uint64_t MIX1 = UINT64_C(0xBF58476D1CE4E5B9), MIX2 = UINT64_C(0x94D049BB133111EB);

INLINE float as_float(uint32_t bits) { float real; memcpy(&real, &bits, sizeof real); return real; }
INLINE uint32_t as_bits(float real) { uint32_t bits; memcpy(&bits, &real, sizeof bits); return bits; }

INLINE uint64_t mix(uint64_t word)
{
    word = (word ^ (word >> 30)) * MIX1;
    word = (word ^ (word >> 27)) * MIX2;
    return word ^ (word >> 31);
}

#ifdef __AVX2__

/* AVX2 has no product of 64-bit numbers. With what a compiler makes of one, and of taking words apart, samples and
 * steps take 10% longer. */

typedef __m256i Counter;   /* of four pairs */

INLINE __m256i all(uint64_t word) { return _mm256_set1_epi64x((long long)word); }
INLINE __m256i fold(__m256i word, int by) { return _mm256_xor_si256(word, _mm256_srli_epi64(word, by)); }
INLINE __m256i cross(__m256i word, uint64_t by) { return _mm256_mullo_epi32(word, all(by >> 32 | by << 32)); }

INLINE __m256i lows(__m256i a, __m256i b)
{
    return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}

INLINE __m256i highs(__m256i a, __m256i b)
{
    return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xDD));
}

INLINE Counter counter_at(uint64_t key, int64_t element)
{
    __m256i steps = _mm256_set_epi64x((long long)(3 * GOLDEN), (long long)(2 * GOLDEN), (long long)GOLDEN, 0);
    return _mm256_add_epi64(all(key + ((uint64_t)element / 2 + 1) * GOLDEN), steps);
}

/* (low, high) times (l, h) is low l + 2^32 (low h + high l); `cross` makes both of the latter. */
INLINE __m256i first_half(__m256i word)
{
    __m256i folded = fold(word, 30), crossed = cross(folded, MIX1);
    __m256i upper = _mm256_add_epi64(_mm256_slli_epi64(crossed, 32), _mm256_and_si256(crossed, all(~LOW)));
    return fold(_mm256_add_epi64(_mm256_mul_epu32(folded, all(MIX1)), upper), 27);
}

INLINE void hash(Lanes *angle, Lanes *radius, int group, Counter *counter)
{
    __m256i a = first_half(*counter), b = first_half(_mm256_add_epi64(*counter, all(4 * GOLDEN)));
    __m256i a_low = _mm256_mul_epu32(a, all(MIX2)), b_low = _mm256_mul_epu32(b, all(MIX2));
    __m256i a_cross = cross(a, MIX2), b_cross = cross(b, MIX2);
    __m256i low = lows(a_low, b_low), high = _mm256_add_epi32(lows(a_cross, b_cross), highs(a_cross, b_cross));
    high = _mm256_add_epi32(high, highs(a_low, b_low));
    /* The last fold, by 31, in halves; it does not reach the 31 bits of the radius. */
    low = _mm256_xor_si256(_mm256_xor_si256(low, _mm256_srli_epi32(low, 31)), _mm256_slli_epi32(high, 1));
    _mm256_store_si256((__m256i *)(angle->bits + GROUP * group), low);
    _mm256_store_si256((__m256i *)(radius->bits + GROUP * group), _mm256_srli_epi32(high, 1));
    *counter = _mm256_add_epi64(*counter, all(GROUP * GOLDEN));
}

INLINE void interleave(Normals *noise, const Lanes *cosine, const Lanes *sine, int group)
{
    __m256 c = _mm256_load_ps(cosine->real + GROUP * group), s = _mm256_load_ps(sine->real + GROUP * group);
    _mm256_store_ps(noise->real + 2 * GROUP * group, _mm256_unpacklo_ps(c, s));
    _mm256_store_ps(noise->real + 2 * GROUP * group + GROUP, _mm256_unpackhi_ps(c, s));
}

#else

typedef uint64_t Counter;

INLINE Counter counter_at(uint64_t key, int64_t element) { return key + ((uint64_t)element / 2 + 1) * GOLDEN; }

/* Pair k of a group and pair 4 + k go to neighbouring lanes: that needs no shuffles. */
INLINE void hash(Lanes *angle, Lanes *radius, int group, Counter *counter)
{
    #pragma omp simd
    for (int k = 0; k < GROUP / 2; k++) {
        uint64_t a = mix(*counter + (uint64_t)k * GOLDEN), b = mix(*counter + (uint64_t)(GROUP / 2 + k) * GOLDEN);
        angle->word[GROUP / 2 * group + k] = (a & LOW) | (b << 32);
        radius->word[GROUP / 2 * group + k] = (a >> 33) | (b >> 33 << 32);
    }
    *counter += GROUP * GOLDEN;
}

INLINE void interleave(Normals *noise, const Lanes *cosine, const Lanes *sine, int group)
{
    #pragma omp simd
    for (int k = 0; k < GROUP / 2; k++) {
        uint64_t c = cosine->word[GROUP / 2 * group + k], s = sine->word[GROUP / 2 * group + k];
        noise->pair[GROUP * group + k] = (c & LOW) | (s << 32);
        noise->pair[GROUP * group + GROUP / 2 + k] = (c >> 32) | (s & ~LOW);
    }
}

#endif

/* Bits to numbers, in the place of the bits, and then in the order of the elements.
 *
 * -log u = -e log 2 - log m with u = 2^e m and 2/3 <= m < 4/3: f = m - 1, -log(1 + f) = -f + f^2 q(f), q of degree 6.
 * The angle is a half turn times x, -1 <= x < 1, plus a whole half turn where the sign is set: polynomials of degree 4
 * in x^2, with the sqrt(2) of sqrt(-2 log u) in their coefficients. Minimax fits; the errors are below 1.2e-7. */
INLINE void box_muller(Normals *restrict noise, Lanes *restrict angle, Lanes *restrict radius)
{
    float energy[PAIRS] ALIGNED;
    #pragma omp simd
    for (int i = 0; i < PAIRS; i++) {
        const uint32_t two_thirds = 0x3F2AAAABu;
        uint32_t u = as_bits((float)(int32_t)radius->bits[i] + 0.5f) - (two_thirds + (31u << 23));
        float e = (float)((int32_t)u >> 23);
        float f = as_float((u & 0x007FFFFFu) + two_thirds) - 1.0f, f2 = f * f;
        float even = 0.499995131f + f2 * (0.250277695f + f2 * (0.161351293f + f2 * 0.16614291f));
        float odd = -0.333378774f + f2 * (-0.197885357f + f2 * -0.171694041f);
        energy[i] = (-f - e * 0.693147182f) + f2 * (even + f * odd);
    }
    #pragma omp simd
    for (int i = 0; i < PAIRS; i++) {
        uint32_t turn = angle->bits[i], twice = turn << 1;
        float r = as_float(as_bits(sqrtf(energy[i])) | ((turn ^ twice) & 0x80000000u));
        float x = (float)(int32_t)twice * 0x1p-31f, z = x * x;
        float cosine = 1.4142135f + z * (-1.74471275f + z * (0.358716323f + z * (-0.0294306711f + z * 0.00121366454f)));
        float sine = 2.2214414f + z * (-0.913530144f + z * (0.11269653f + z * (-0.00660752808f + z * 0.000213292479f)));
        angle->real[i] = r * cosine;
        radius->real[i] = r * x * sine;
    }
    for (int group = 0; group < GROUPS; group++)
        interleave(noise, angle, radius, group);
}
