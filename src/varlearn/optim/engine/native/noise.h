/* Standard normals, a block at a time: SplitMix64 of a counter, then Box and Muller. Twin of core/noise.py. */

#include "vector.h"

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define LOW UINT64_C(0xFFFFFFFF)

enum { PAIRS = TOGETHER / 2 };   /* vectors with a number for each pair of elements */

static const uint64_t MIX1 = UINT64_C(0xBF58476D1CE4E5B9), MIX2 = UINT64_C(0x94D049BB133111EB);

INLINE uint64_t mix(uint64_t word)
{
    word = (word ^ (word >> 30)) * MIX1;
    word = (word ^ (word >> 27)) * MIX2;
    return word ^ (word >> 31);
}

/* The state of SplitMix64 for the pairs that one vector of words holds. */
INLINE Words counter_at(uint64_t key, int64_t element)
{
    Words steps;
    for (int lane = 0; lane < WIDTH / 2; lane++)
        steps[lane] = (uint64_t)lane * GOLDEN;
    return steps + (key + ((uint64_t)element / 2 + 1) * GOLDEN);
}

/* A vector of angles and one of radii from two of words, whose halves they are: 32 bits and 31. Within a vector the
 * pairs are in another order: `split` makes it, `interleave` undoes it. */

#if defined(WIDE)

INLINE void split(Bits *angle, Bits *radius, Words a, Words b)
{
    EACH(round, 2) {
        const int by = round ? 27 : 30;
        const uint64_t factor = round ? MIX2 : MIX1;
        a = (Words)_mm512_mullo_epi64((__m512i)(a ^ a >> by), _mm512_set1_epi64((long long)factor));
        b = (Words)_mm512_mullo_epi64((__m512i)(b ^ b >> by), _mm512_set1_epi64((long long)factor));
    }
    a ^= a >> 31;
    b ^= b >> 31;
    *angle = (Bits)_mm512_shuffle_ps((__m512)a, (__m512)b, 0x88);
    *radius = (Bits)_mm512_shuffle_ps((__m512)a, (__m512)b, 0xDD) >> 1;
}

INLINE void interleave(Vec *first, Vec *second, Vec cosine, Vec sine)
{
    *first = _mm512_unpacklo_ps(cosine, sine);
    *second = _mm512_unpackhi_ps(cosine, sine);
}

#elif defined(__AVX2__)

/* AVX2 has no product of 64-bit numbers. With what a compiler makes of one, and of taking words apart, samples and
 * steps take 10% longer. (low, high) times (l, h) is low l + 2^32 (low h + high l); `cross` makes both of the latter. */
INLINE __m256i all(uint64_t word) { return _mm256_set1_epi64x((long long)word); }
INLINE Words product(Words word, uint64_t by) { return (Words)_mm256_mul_epu32((__m256i)word, all(by)); }
INLINE Words cross(Words word, uint64_t by) { return (Words)_mm256_mullo_epi32((__m256i)word, all(by >> 32 | by << 32)); }
INLINE Bits lows(Words a, Words b) { return (Bits)_mm256_shuffle_ps((__m256)a, (__m256)b, 0x88); }
INLINE Bits highs(Words a, Words b) { return (Bits)_mm256_shuffle_ps((__m256)a, (__m256)b, 0xDD); }

INLINE Words first_half(Words word)
{
    word ^= word >> 30;
    Words crossed = cross(word, MIX1);
    word = product(word, MIX1) + (crossed << 32) + (crossed & ~LOW);
    return word ^ word >> 27;
}

INLINE void split(Bits *angle, Bits *radius, Words a, Words b)
{
    a = first_half(a);
    b = first_half(b);
    Words a_low = product(a, MIX2), b_low = product(b, MIX2), a_cross = cross(a, MIX2), b_cross = cross(b, MIX2);
    Bits low = lows(a_low, b_low), high = lows(a_cross, b_cross) + highs(a_cross, b_cross) + highs(a_low, b_low);
    /* The last fold, by 31, in halves; it does not reach the 31 bits of the radius. */
    *angle = low ^ low >> 31 ^ high << 1;
    *radius = high >> 1;
}

INLINE void interleave(Vec *first, Vec *second, Vec cosine, Vec sine)
{
    *first = _mm256_unpacklo_ps(cosine, sine);
    *second = _mm256_unpackhi_ps(cosine, sine);
}

#else

/* Pair k of one vector and pair k of the other go to neighbouring lanes: that needs no shuffles. */
INLINE void split(Bits *angle, Bits *radius, Words a, Words b)
{
    for (int lane = 0; lane < WIDTH / 2; lane++) {
        a[lane] = mix(a[lane]);
        b[lane] = mix(b[lane]);
    }
    *angle = (Bits)((a & LOW) | b << 32);
    *radius = (Bits)(a >> 33 | b >> 33 << 32);
}

INLINE void interleave(Vec *first, Vec *second, Vec cosine, Vec sine)
{
    Words c = (Words)cosine, s = (Words)sine;
    *first = (Vec)((c & LOW) | s << 32);
    *second = (Vec)(c >> 32 | (s & ~LOW));
}

#endif

/* -log u of u = (bits + 1/2) 2^-31 = 2^e m, 2/3 <= m < 4/3: -e log 2 - log m. With f = m - 1, -log(1 + f) is -f + f^2 q(f),
 * q of degree 6. A minimax fit, like those below; the errors are below 1.2e-7. */
INLINE Vec energy(Bits bits)
{
    const uint32_t two_thirds = 0x3F2AAAABu;
    bits = (Bits)(to_float(bits) + 0.5f) - (two_thirds + (31u << 23));
    Vec e = to_float(bits & 0xFF800000u);
    Vec f = (Vec)((bits & 0x007FFFFFu) + two_thirds) - 1.0f, f2 = f * f;
    Vec even = 0.499995131f + f2 * (0.250277695f + f2 * (0.161351293f + f2 * 0.16614291f));
    Vec odd = -0.333378774f + f2 * (-0.197885357f + f2 * -0.171694041f);
    return f2 * (even + f * odd) - (f + e * (0.693147182f * 0x1p-23f));
}

/* r sqrt(2) times cosine and sine of the angle, which is a half turn times x, -1 <= x < 1, plus a whole half turn where
 * the sign is set: polynomials of degree 4 in x^2. */
INLINE void turn(Vec *first, Vec *second, Vec r, Bits angle)
{
    Bits twice = angle + angle;
    r = (Vec)((Bits)r | ((angle ^ twice) & 0x80000000u));
    Vec x = to_float(twice) * 0x1p-31f, z = x * x;
    Vec c = 1.4142135f + z * (-1.74471275f + z * (0.358716323f + z * (-0.0294306711f + z * 0.00121366454f)));
    Vec s = 2.2214414f + z * (-0.913530144f + z * (0.11269653f + z * (-0.00660752808f + z * 0.000213292479f)));
    interleave(first, second, r * c, r * (x * s));
}

/* Angles and radii of a block's pairs. */
typedef struct {
    Bits angle[PAIRS], radius[PAIRS];
} Hashed;

/* The part of vector k; it takes two vectors to fill one of angles, so nothing is left to do for the odd ones. */
INLINE void hash(Hashed *hashed, int k, Words counter)
{
    if (k % 2 == 0) {
        counter += (uint64_t)(k * WIDTH / 2) * GOLDEN;
        split(&hashed->angle[k / 2], &hashed->radius[k / 2], counter, counter + (uint64_t)(WIDTH / 2) * GOLDEN);
    }
}

INLINE void box_muller(Vec *noise, const Hashed *hashed)
{
    Vec r[PAIRS];
    EACH(k, PAIRS) r[k] = root(energy(hashed->radius[k]));
    EACH(k, PAIRS) turn(&noise[2 * k], &noise[2 * k + 1], r[k], hashed->angle[k]);
}
