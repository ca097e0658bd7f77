/* Vectors of the processor's width, as GCC and Clang have them: the operators of C work lane by lane, and a number
 * beside a vector stands for one in every lane. What they have no syntax for is defined here. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define WIDE
enum { WIDTH = 16 };   /* lanes */
#elif defined(__AVX2__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif

/* So many vectors go through each operation together: while one waits for its result, the others are at work. With half
 * as many AVX2 takes 1.2 times as long for a step, with twice as many 1.1 times. */
enum { TOGETHER = 8, BLOCK = TOGETHER * WIDTH };

#define EACH(k, count) _Pragma("GCC unroll 8") for (int k = 0; k < (count); k++)

typedef float Vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t Ints __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t Bits __attribute__((vector_size(4 * WIDTH)));
typedef uint64_t Words __attribute__((vector_size(4 * WIDTH)));
typedef float Loose __attribute__((vector_size(4 * WIDTH), aligned(4)));   /* anywhere in memory */

INLINE Vec load(const float *from, int k) { return *(const Loose *)(from + k * WIDTH); }
INLINE void store(float *to, int k, Vec x) { *(Loose *)(to + k * WIDTH) = x; }

/* Past the cache, to an address that is a multiple of a vector: an ordinary store first reads what it overwrites. */
INLINE void stream(float *to, int k, Vec x)
{
#if defined(WIDE)
    _mm512_stream_ps(to + k * WIDTH, x);
#elif defined(__AVX2__)
    _mm256_stream_ps(to + k * WIDTH, x);
#else
    store(to, k, x);
#endif
}

INLINE void put(float *to, int k, Vec x, int past_cache)
{
    if (past_cache)
        stream(to, k, x);
    else
        store(to, k, x);
}

/* Before other threads read what was streamed. */
INLINE void end_stream(void)
{
#ifdef __AVX2__
    _mm_sfence();
#endif
}

INLINE Vec every(float x) { return x - (Vec){0}; }
INLINE Vec to_float(Bits x) { return __builtin_convertvector((Ints)x, Vec); }

/* NaN stays NaN, as in torch.clamp: of two numbers, one of which is none, x86 takes the second. */
INLINE Vec at_least(Vec x, float low)
{
#if defined(WIDE)
    return _mm512_max_ps(every(low), x);
#elif defined(__AVX2__)
    return _mm256_max_ps(every(low), x);
#else
    Ints below = x < low;
    return (Vec)((below & (Ints)every(low)) | (~below & (Ints)x));
#endif
}

INLINE Vec at_most(Vec x, float high)
{
#if defined(WIDE)
    return _mm512_min_ps(every(high), x);
#elif defined(__AVX2__)
    return _mm256_min_ps(every(high), x);
#else
    Ints above = x > high;
    return (Vec)((above & (Ints)every(high)) | (~above & (Ints)x));
#endif
}

INLINE Vec clamp(Vec x, float low, float high) { return at_most(at_least(x, low), high); }

INLINE Vec root(Vec x)
{
#if defined(WIDE)
    return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
    return _mm256_sqrt_ps(x);
#else
    for (int i = 0; i < WIDTH; i++)
        x[i] = sqrtf(x[i]);
    return x;
#endif
}
