/* The fused CPU path: lines 2 to 7 of Algorithm 1 for lists of float32 tensors, one pass over memory for each call.
 *
 * Twin of core/noise.py (the numbers) and core/update.py (the rule); the tests compare them at every step. Plain C with
 * OpenMP: the compiler makes vector code of whatever width the machine has. Python passes raw addresses (native.py).
 *
 * Work is cut into blocks of 128 elements. A block goes through a chain of short loops over small arrays that stay in
 * the first-level cache, because a long loop body runs out of the processor's scheduling window and waits for its own
 * latencies: one loop for everything took 1.3 times as long. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define ALIGNED __attribute__((aligned(64)))

enum { BLOCK = 128, PAIRS = BLOCK / 2, HALF = PAIRS / 2 };   /* elements, pairs of them, half of the pairs */
enum { CHUNK = 32 * BLOCK };          /* what a thread takes at a time */
enum { PARALLEL_FROM = 4 * CHUNK };   /* elements below which waking the other threads costs more than it saves */
enum { STREAM_FROM = 1 << 22 };       /* elements above which a copy does not stay in the cache anyway */

/* ---- noise: SplitMix64 of a counter, then Box and Muller ---- */

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define LOW UINT64_C(0xFFFFFFFF)

typedef union {
    uint64_t word[HALF];
    uint32_t bits[PAIRS];
    float real[PAIRS];
} Lanes;

typedef union {
    uint64_t pair[PAIRS];
    float real[BLOCK];
} Normals;

INLINE float as_float(uint32_t bits) { float real; memcpy(&real, &bits, sizeof real); return real; }
INLINE uint32_t as_bits(float real) { uint32_t bits; memcpy(&bits, &real, sizeof bits); return bits; }

INLINE uint64_t mix(uint64_t word)
{
    word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
    return word ^ (word >> 31);
}

INLINE uint64_t counter_at(uint64_t key, int64_t element) { return key + ((uint64_t)element / 2 + 1) * GOLDEN; }

/* The 64 bits of the pairs i and HALF + i. Their halves go to neighbouring lanes, which needs no shuffles: lane 2i of
 * `angle` and `radius` belongs to pair i, lane 2i + 1 to pair HALF + i. */
INLINE void hash(Lanes *angle, Lanes *radius, int i, uint64_t counter)
{
    uint64_t first = mix(counter), second = mix(counter + HALF * GOLDEN);
    angle->word[i] = (first & LOW) | (second << 32);
    radius->word[i] = (first >> 33) | (second >> 33 << 32);
}

/* Bits to numbers, in the place of the bits, and then in the order of the elements.
 *
 * -log u = -e log 2 - log m with u = 2^e m and 2/3 <= m < 4/3: f = m - 1, -log(1 + f) = -f + f^2 q(f), q of degree 6.
 * The angle is a half turn times x, -1 <= x < 1, plus a whole half turn where the sign is set: polynomials of degree 4
 * in x^2, with the sqrt(2) of sqrt(-2 log u) in their coefficients. Minimax fits; the errors are below 1.4e-7. */
INLINE void box_muller(Normals *restrict noise, Lanes *restrict angle, Lanes *restrict radius)
{
    float energy[PAIRS] ALIGNED;
    #pragma omp simd
    for (int i = 0; i < PAIRS; i++) {
        const uint32_t two_thirds = 0x3F2AAAABu;
        uint32_t u = as_bits((float)(int32_t)radius->bits[i] + 0.5f) - (two_thirds + (31u << 23));
        float e = (float)((int32_t)u >> 23);
        float f = as_float((u & 0x007FFFFFu) + two_thirds) - 1.0f, f2 = f * f;
        float even = 0.499995131f + f2 * (0.250277695f + f2 * (0.161351293f + f2 * 0.16614291f)), odd = -0.333378774f + f2 * (-0.197885357f + f2 * -0.171694041f);
        energy[i] = (-f - e * 0.693147182f) + f2 * (even + f * odd);
    }
    #pragma omp simd
    for (int i = 0; i < PAIRS; i++) {
        uint32_t turn = angle->bits[i], twice = turn << 1;
        float r = as_float(as_bits(sqrtf(energy[i])) | ((turn ^ twice) & 0x80000000u));
        float x = (float)(int32_t)twice * 0x1p-31f, z = x * x;
        float cosine = 1.4142135f + z * (-1.74471275f + z * (0.358716323f + z * (-0.0294306711f + z * 0.00121366454f)));
        float sine = 2.22144142f + z * (-0.913530144f + z * (0.11269653f + z * (-0.00660752808f + z * 0.000213292479f)));
        angle->real[i] = r * cosine;
        radius->real[i] = r * x * sine;
    }
    #pragma omp simd
    for (int i = 0; i < HALF; i++) {
        uint64_t cosines = angle->word[i], sines = radius->word[i];
        noise->pair[i] = (cosines & LOW) | (sines << 32);
        noise->pair[HALF + i] = (cosines >> 32) | (sines & ~LOW);
    }
}

/* ---- line 2: a sample ---- */

/* NaN stays NaN, as in torch.clamp. */
INLINE float at_least(float x, float low) { return x < low ? low : x; }
INLINE float clamp(float x, float low, float high) { x = at_least(x, low); return x > high ? high : x; }

typedef struct {
    float scale;    /* sign / sqrt(lambda) */
    float decay;    /* delta */
    float lowest;   /* the smallest h + delta */
} Scale;

typedef struct {
    int64_t size;
    float *param;
    const float *mean;
    float *kept;   /* receives the mean, or NULL */
    const float *hess;
    uint64_t key;
    const Scale *scale;
} Draw;

/* The divider works on sigma while the other units hash. */
INLINE void draw_block(float *param, const float *mean, const float *hess, uint64_t counter, Scale s)
{
    Lanes angle ALIGNED, radius ALIGNED;
    Normals noise ALIGNED;
    float std[BLOCK] ALIGNED;
    #pragma omp simd linear(counter : GOLDEN)
    for (int i = 0; i < HALF; i++) {
        hash(&angle, &radius, i, counter);
        counter += GOLDEN;
        for (int j = i, k = 0; k < 4; j += HALF, k++)
            std[j] = s.scale / sqrtf(at_least(hess[j] + s.decay, s.lowest));
    }
    box_muller(&noise, &angle, &radius);
    #pragma omp simd
    for (int i = 0; i < BLOCK; i++)
        param[i] = mean[i] + std[i] * noise.real[i];
}

/* Copy past the cache where the copy would not stay in it; an ordinary store first reads what it overwrites. */
INLINE void copy_block(float *restrict to, const float *restrict from, int stream)
{
    (void)stream;
#ifdef __AVX__
    if (stream && (uintptr_t)to % 32 == 0) {
        for (int i = 0; i < BLOCK; i += 8)
            _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
        return;
    }
#endif
    memcpy(to, from, BLOCK * sizeof *to);
}

static int draw_span(const void *task, int64_t start, int64_t stop, int stream)
{
    const Draw t = *(const Draw *)task;
    const Scale s = *t.scale;
    for (; start + BLOCK <= stop; start += BLOCK) {
        if (t.kept)
            copy_block(t.kept + start, t.mean + start, stream);
        draw_block(t.param + start, t.mean + start, t.hess + start, counter_at(t.key, start), s);
    }
    if (start < stop) {
        float mean[BLOCK] = {0}, hess[BLOCK] = {0};
        size_t bytes = (size_t)(stop - start) * sizeof(float);
        memcpy(mean, t.mean + start, bytes);
        memcpy(hess, t.hess + start, bytes);
        if (t.kept)
            memcpy(t.kept + start, mean, bytes);
        draw_block(mean, mean, hess, counter_at(t.key, start), s);
        memcpy(t.param + start, mean, bytes);
    }
    return 1;
}

/* ---- lines 3 to 7: a step ---- */

enum { REPARAM, SQUARED_GRADIENT, GIVEN };

typedef struct {
    int64_t approximation;
    float grad_factor;
    float noise_scale;      /* of the draw: sqrt(lambda), delta, the smallest h + delta */
    float noise_decay;
    float noise_lowest;
    float beta1;
    float grad_weight;      /* (1 - beta1) times the clip factor */
    float hess_weight;      /* 1 - beta2 */
    float decay;            /* delta, the smallest h + delta, the smallest h */
    float lowest;
    float lowest_hess;
    float debias;           /* 1 / (1 - beta1^t) */
    float lr;
    float clip_radius;
    float prior_mean;
    float largest;          /* where hhat and h saturate, and where m does */
    float largest_mean;
} Hyper;

typedef struct {
    int64_t size;
    float *mean, *momentum, *hess;
    const float *grad;
    const float *estimate;     /* NULL unless GIVEN */
    const float *prior_mean;   /* NULL where it is the number in `hyper` */
    uint64_t key;
    const Hyper *hyper;
} Step;

typedef struct {
    float *mean, *momentum, *hess;
    const float *grad, *estimate, *prior_mean;
} Block;

/* hhat = ghat epsilon / sigma; on the way 1 / (h + delta), again while the other units hash. */
INLINE void reparam(float *restrict estimate, float *restrict inverse, const Block *b, uint64_t counter, const Hyper *s)
{
    Lanes angle ALIGNED, radius ALIGNED;
    Normals noise ALIGNED;
    const float *hess = b->hess, *grad = b->grad;
    #pragma omp simd linear(counter : GOLDEN)
    for (int i = 0; i < HALF; i++) {
        hash(&angle, &radius, i, counter);
        counter += GOLDEN;
        for (int j = i, k = 0; k < 4; j += HALF, k++) {
            estimate[j] = sqrtf(at_least(hess[j] + s->noise_decay, s->noise_lowest)) * s->noise_scale;
            inverse[j] = 1.0f / at_least(hess[j] + s->decay, s->lowest);
        }
    }
    box_muller(&noise, &angle, &radius);
    #pragma omp simd
    for (int i = 0; i < BLOCK; i++)
        estimate[i] *= grad[i] * s->grad_factor * noise.real[i];
}

INLINE void step_block(const Block *b, uint64_t counter, const Hyper *s)
{
    float estimate[BLOCK] ALIGNED, inverse[BLOCK] ALIGNED;
    float *restrict mean = b->mean, *restrict momentum = b->momentum, *restrict hess = b->hess;
    const float *restrict grad = b->grad, *restrict prior_mean = b->prior_mean;
    if (s->approximation == REPARAM) {
        reparam(estimate, inverse, b, counter, s);
    } else {
        const float *given = s->approximation == GIVEN ? b->estimate : NULL;
        #pragma omp simd
        for (int i = 0; i < BLOCK; i++)
            inverse[i] = 1.0f / at_least(hess[i] + s->decay, s->lowest);
        for (int i = 0; i < BLOCK; i++)
            estimate[i] = given ? given[i] : grad[i] * s->grad_factor * (grad[i] * s->grad_factor);
    }
    const Hyper c = *s;
    #pragma omp simd
    for (int i = 0; i < BLOCK; i++) {
        /* h + d (1 + x/2) with d = (1 - beta2)(hhat - h) and x = d / (h + delta): +inf at worst, never NaN. */
        float h = hess[i];
        float d = (clamp(estimate[i], -c.largest, c.largest) - h) * c.hess_weight;
        hess[i] = clamp(h + d * (1.0f + 0.5f * (d * inverse[i])), c.lowest_hess, c.largest);
    }
    #pragma omp simd
    for (int i = 0; i < BLOCK; i++) {
        float m = mean[i], g = c.beta1 * momentum[i] + c.grad_weight * (grad[i] * c.grad_factor);
        float precision = at_least(hess[i] + c.decay, c.lowest);
        float direction = (g * c.debias + c.decay * (m - prior_mean[i])) / precision;
        momentum[i] = g;
        mean[i] = clamp(m - c.lr * clamp(direction, -c.clip_radius, c.clip_radius), -c.largest_mean, c.largest_mean);
    }
}

static int step_span(const void *task, int64_t start, int64_t stop, int stream)
{
    const Step t = *(const Step *)task;
    float everywhere[BLOCK];
    (void)stream;
    for (int i = 0; i < BLOCK; i++)
        everywhere[i] = t.hyper->prior_mean;
    for (; start + BLOCK <= stop; start += BLOCK) {
        Block b = {t.mean + start, t.momentum + start, t.hess + start, t.grad + start,
                   t.estimate ? t.estimate + start : NULL, t.prior_mean ? t.prior_mean + start : everywhere};
        step_block(&b, counter_at(t.key, start), t.hyper);
    }
    if (start < stop) {
        float mean[BLOCK] = {0}, momentum[BLOCK] = {0}, hess[BLOCK] = {0}, grad[BLOCK] = {0}, estimate[BLOCK] = {0};
        size_t bytes = (size_t)(stop - start) * sizeof(float);
        memcpy(mean, t.mean + start, bytes);
        memcpy(momentum, t.momentum + start, bytes);
        memcpy(hess, t.hess + start, bytes);
        memcpy(grad, t.grad + start, bytes);
        if (t.estimate)
            memcpy(estimate, t.estimate + start, bytes);
        if (t.prior_mean)
            memcpy(everywhere, t.prior_mean + start, bytes);
        Block b = {mean, momentum, hess, grad, estimate, everywhere};
        step_block(&b, counter_at(t.key, start), t.hyper);
        memcpy(t.mean + start, mean, bytes);
        memcpy(t.momentum + start, momentum, bytes);
        memcpy(t.hess + start, hess, bytes);
    }
    return 1;
}

/* ---- copies and checks ---- */

typedef struct {
    int64_t size;
    float *to;
    const float *from;
} Copy;

static int copy_span(const void *task, int64_t start, int64_t stop, int stream)
{
    const Copy t = *(const Copy *)task;
    for (; start + BLOCK <= stop; start += BLOCK)
        copy_block(t.to + start, t.from + start, stream);
    memcpy(t.to + start, t.from + start, (size_t)(stop - start) * sizeof(float));
    return 1;
}

typedef struct {
    int64_t size;
    const float *values;
} Check;

/* An exponent of ones means infinite or not a number. */
static int check_span(const void *task, int64_t start, int64_t stop, int stream)
{
    const float *values = ((const Check *)task)->values;
    const uint32_t ones = 0x7F800000u;
    uint32_t found = 0;
    (void)stream;
    #pragma omp simd reduction(| : found)
    for (int64_t i = start; i < stop; i++)
        found |= (as_bits(values[i]) & ones) == ones;
    return !found;
}

/* ---- work on lists of tensors ---- */

typedef int (*Span)(const void *task, int64_t start, int64_t stop, int stream);

/* Every task begins with its size. The chunks of all tensors form one list, so that many small tensors and a few large
 * ones are shared out alike. Returns whether every chunk returned 1. */
static int run(Span span, const char *tasks, int64_t count, size_t width, int threads)
{
    int64_t chunks = 0, elements = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t size = *(const int64_t *)(tasks + k * width);
        chunks += (size + CHUNK - 1) / CHUNK;
        elements += size;
    }
    int good = 1, stream = elements >= STREAM_FROM;
    #pragma omp parallel num_threads(threads) if (elements >= PARALLEL_FROM) reduction(& : good)
    {
        const char *task = tasks;
        int64_t first = 0;
        #pragma omp for schedule(monotonic : dynamic)
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            int64_t size = *(const int64_t *)task;
            while ((chunk - first) * CHUNK >= size) {
                first += (size + CHUNK - 1) / CHUNK;
                task += width;
                size = *(const int64_t *)task;
            }
            int64_t start = (chunk - first) * CHUNK;
            good &= span(task, start, start + CHUNK < size ? start + CHUNK : size, stream);
        }
#ifdef __AVX__
        _mm_sfence();
#endif
    }
    return good;
}

/* `done` is set after the last write: a caller that was interrupted knows whether the call was made. */
#define KERNEL(name, Task)                                                                                \
    EXPORT void varlearn_##name(const Task *tasks, int64_t count, int threads, int *done)                 \
    {                                                                                                     \
        int good = run(name##_span, (const char *)tasks, count, sizeof *tasks, threads);                  \
        if (done)                                                                                         \
            *done = good;                                                                                 \
    }

KERNEL(draw, Draw)
KERNEL(step, Step)
KERNEL(copy, Copy)
KERNEL(check, Check)
