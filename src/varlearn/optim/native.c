/* The fused CPU path: lines 2 to 7 of Algorithm 1 for lists of float32 tensors, one pass over memory for each call.
 *
 * Twin of core/noise.py (the numbers) and core/update.py (the rule); the tests compare them at every step. Plain C with
 * OpenMP: the compiler makes vector code of whatever width the machine has. Python passes raw addresses (native.py).
 *
 * Work is cut into blocks of 128 elements. A block goes through a chain of short loops over small arrays that stay in
 * the first-level cache, because a long loop body runs out of the processor's scheduling window and waits for its own
 * latencies: one loop for everything took 1.3 times as long. */

#include "native_noise.h"

#define EXPORT __attribute__((visibility("default")))

enum { CHUNK = 32 * BLOCK };          /* what a thread takes at least */
enum { PARALLEL_FROM = 4 * CHUNK };   /* elements below which waking the other threads costs more than it saves */
enum { STREAM_FROM = 1 << 22 };       /* elements above which a copy does not stay in the cache anyway */

/* A key, or what is folded into the key of a whole draw to make one (core/noise.py's fold_in). */
typedef struct {
    uint64_t key;
    const uint64_t *draw;   /* or NULL */
} Key;

INLINE uint64_t key_of(Key k) { return k.draw ? mix((*k.draw ^ k.key) + GOLDEN) : k.key; }

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
    Key key;
    const Scale *scale;
} Draw;

/* The divider works on sigma while the other units hash: apart, a sample takes 1.1 times as long. */
INLINE void draw_block(float *param, const float *mean, const float *hess, Counter counter, Scale s)
{
    Lanes angle ALIGNED, radius ALIGNED;
    Normals noise ALIGNED;
    float std[BLOCK] ALIGNED;
    for (int group = 0; group < GROUPS; group++) {
        hash(&angle, &radius, group, &counter);
        #pragma omp simd
        for (int j = 2 * GROUP * group; j < 2 * GROUP * (group + 1); j++)
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

static int sample_span(const Draw *t, Scale s, int64_t start, int64_t stop, int stream)
{
    const uint64_t key = key_of(t->key);
    for (; start + BLOCK <= stop; start += BLOCK) {
        if (t->kept)
            copy_block(t->kept + start, t->mean + start, stream);
        draw_block(t->param + start, t->mean + start, t->hess + start, counter_at(key, start), s);
    }
    if (start < stop) {
        float mean[BLOCK] = {0}, hess[BLOCK] = {0};
        size_t bytes = (size_t)(stop - start) * sizeof(float);
        memcpy(mean, t->mean + start, bytes);
        memcpy(hess, t->hess + start, bytes);
        if (t->kept)
            memcpy(t->kept + start, mean, bytes);
        draw_block(mean, mean, hess, counter_at(key, start), s);
        memcpy(t->param + start, mean, bytes);
    }
    return 1;
}

static int draw_span(const void *task, int64_t start, int64_t stop, int stream)
{
    const Draw t = *(const Draw *)task;
    return sample_span(&t, *t.scale, start, stop, stream);
}

/* The sample comes out: the mean is copied back, or the noise subtracted. */
static int restore_span(const void *task, int64_t start, int64_t stop, int stream)
{
    Draw t = *(const Draw *)task;
    Scale s = *t.scale;
    if (!t.kept) {
        s.scale = -s.scale;
        return sample_span(&t, s, start, stop, stream);
    }
    for (; start + BLOCK <= stop; start += BLOCK)
        copy_block(t.param + start, t.kept + start, stream);
    memcpy(t.param + start, t.kept + start, (size_t)(stop - start) * sizeof(float));
    return 1;
}

/* ---- lines 3 to 7: a step ---- */

enum { REPARAM, SQUARED_GRADIENT, GIVEN };

typedef struct {
    int64_t approximation;
    float grad_factor;
    float noise_scale;      /* of the draw: sqrt(lambda) times the gradient's factor, delta, smallest h + delta */
    float noise_decay;
    float noise_lowest;
    float beta1;
    float grad_weight;      /* (1 - beta1) times the gradient's factors */
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
    Key key;
    const Hyper *hyper;
} Step;

typedef struct {
    float *mean, *momentum, *hess;
    const float *grad, *estimate, *prior_mean;
} Block;

/* hhat = ghat epsilon / sigma; on the way 1 / (2 (h + delta)), again while the other units hash. */
INLINE void reparam(float *restrict estimate, float *restrict half_inverse, const Block *b, Counter counter,
                    const Hyper *s)
{
    Lanes angle ALIGNED, radius ALIGNED;
    Normals noise ALIGNED;
    const float *hess = b->hess, *grad = b->grad;
    for (int group = 0; group < GROUPS; group++) {
        hash(&angle, &radius, group, &counter);
        #pragma omp simd
        for (int j = 2 * GROUP * group; j < 2 * GROUP * (group + 1); j++) {
            estimate[j] = sqrtf(at_least(hess[j] + s->noise_decay, s->noise_lowest)) * s->noise_scale;
            half_inverse[j] = 0.5f / at_least(hess[j] + s->decay, s->lowest);
        }
    }
    box_muller(&noise, &angle, &radius);
    #pragma omp simd
    for (int i = 0; i < BLOCK; i++)
        estimate[i] *= grad[i] * noise.real[i];
}

INLINE void step_block(const Block *b, Counter counter, const Hyper *s)
{
    float estimate[BLOCK] ALIGNED, half_inverse[BLOCK] ALIGNED;
    float *restrict mean = b->mean, *restrict momentum = b->momentum, *restrict hess = b->hess;
    const float *restrict grad = b->grad, *restrict prior_mean = b->prior_mean;
    if (s->approximation == REPARAM) {
        reparam(estimate, half_inverse, b, counter, s);
    } else {
        const float *given = s->approximation == GIVEN ? b->estimate : NULL;
        #pragma omp simd
        for (int i = 0; i < BLOCK; i++)
            half_inverse[i] = 0.5f / at_least(hess[i] + s->decay, s->lowest);
        for (int i = 0; i < BLOCK; i++)
            estimate[i] = given ? given[i] : grad[i] * s->grad_factor * (grad[i] * s->grad_factor);
    }
    const Hyper c = *s;
    #pragma omp simd
    for (int i = 0; i < BLOCK; i++) {
        /* h + d (1 + x/2) with d = (1 - beta2)(hhat - h) and x = d / (h + delta): +inf at worst, never NaN. */
        float h = hess[i];
        float d = (clamp(estimate[i], -c.largest, c.largest) - h) * c.hess_weight;
        hess[i] = clamp(h + d * (1.0f + d * half_inverse[i]), c.lowest_hess, c.largest);
    }
    #pragma omp simd
    for (int i = 0; i < BLOCK; i++) {
        float m = mean[i], g = c.beta1 * momentum[i] + c.grad_weight * grad[i];
        float precision = at_least(hess[i] + c.decay, c.lowest);
        float direction = (g * c.debias + c.decay * (m - prior_mean[i])) / precision;
        momentum[i] = g;
        mean[i] = clamp(m - c.lr * clamp(direction, -c.clip_radius, c.clip_radius), -c.largest_mean, c.largest_mean);
    }
}

static int step_span(const void *task, int64_t start, int64_t stop, int stream)
{
    const Step t = *(const Step *)task;
    const uint64_t key = key_of(t.key);
    float everywhere[BLOCK];
    (void)stream;
    for (int i = 0; i < BLOCK; i++)
        everywhere[i] = t.hyper->prior_mean;
    for (; start + BLOCK <= stop; start += BLOCK) {
        Block b = {t.mean + start, t.momentum + start, t.hess + start, t.grad + start,
                   t.estimate ? t.estimate + start : NULL, t.prior_mean ? t.prior_mean + start : everywhere};
        step_block(&b, counter_at(key, start), t.hyper);
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
        step_block(&b, counter_at(key, start), t.hyper);
        memcpy(t.mean + start, mean, bytes);
        memcpy(t.momentum + start, momentum, bytes);
        memcpy(t.hess + start, hess, bytes);
    }
    return 1;
}

/* ---- several samples in a step: running means of ghat and hhat ---- */

typedef struct {
    int64_t size;
    const float *grad;
    float *grad_mean;       /* NULL where only hhat is wanted */
    float *estimate_mean;
    const float *hess;
    uint64_t key;
    const Hyper *hyper;     /* beta1 and grad_weight: the weights of the old mean and of the new value */
} Fold;

INLINE void fold_block(const float *grad, float *restrict grad_mean, float *restrict estimate_mean, const float *hess,
                       Counter counter, const Hyper *s)
{
    float estimate[BLOCK] ALIGNED, unused[BLOCK] ALIGNED;
    const Block b = {NULL, NULL, (float *)hess, grad, NULL, NULL};
    if (s->approximation == REPARAM)
        reparam(estimate, unused, &b, counter, s);
    else
        for (int i = 0; i < BLOCK; i++)
            estimate[i] = grad[i] * grad[i];
    const Hyper c = *s;
    #pragma omp simd
    for (int i = 0; i < BLOCK; i++) {
        estimate_mean[i] = c.beta1 * estimate_mean[i] + c.grad_weight * clamp(estimate[i], -c.largest, c.largest);
        grad_mean[i] = c.beta1 * grad_mean[i] + c.grad_weight * grad[i];
    }
}

static int fold_span(const void *task, int64_t start, int64_t stop, int stream)
{
    const Fold t = *(const Fold *)task;
    float nowhere[BLOCK] ALIGNED = {0};
    (void)stream;
    for (; start + BLOCK <= stop; start += BLOCK)
        fold_block(t.grad + start, t.grad_mean ? t.grad_mean + start : nowhere, t.estimate_mean + start, t.hess + start,
                   counter_at(t.key, start), t.hyper);
    if (start < stop) {
        float grad[BLOCK] = {0}, estimate_mean[BLOCK] = {0}, hess[BLOCK] = {0};
        size_t bytes = (size_t)(stop - start) * sizeof(float);
        memcpy(grad, t.grad + start, bytes);
        memcpy(estimate_mean, t.estimate_mean + start, bytes);
        memcpy(hess, t.hess + start, bytes);
        if (t.grad_mean)
            memcpy(nowhere, t.grad_mean + start, bytes);
        fold_block(grad, nowhere, estimate_mean, hess, counter_at(t.key, start), t.hyper);
        memcpy(t.estimate_mean + start, estimate_mean, bytes);
        if (t.grad_mean)
            memcpy(t.grad_mean + start, nowhere, bytes);
    }
    return 1;
}

/* ---- the look for NaN ---- */

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
 * ones are shared out alike. Each thread takes long runs of neighbours first: where threads take turns at short ones,
 * each core fetches ahead what the other is about to write, and a step takes 1.2 times as long.
 * Returns whether every chunk returned 1. */
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
        #pragma omp for schedule(monotonic : guided)
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

/* `done` is turned over after the last write, if all went well: a caller that was interrupted between a call and the
 * next line knows whether the call was made. */
#define KERNEL(name, Task)                                                                                \
    EXPORT void varlearn_##name(const Task *tasks, int64_t count, int threads, int *done)                 \
    {                                                                                                     \
        int good = run(name##_span, (const char *)tasks, count, sizeof *tasks, threads);                  \
        if (done)                                                                                         \
            *done ^= good;                                                                                \
    }

KERNEL(draw, Draw)
KERNEL(restore, Draw)
KERNEL(step, Step)
KERNEL(fold, Fold)
KERNEL(check, Check)
