/* The fused CPU path: lines 2 to 7 of Algorithm 1 for lists of float32 tensors, one pass over memory for each call.
 *
 * Twin of core/noise.py (the numbers) and core/update.py (the rule); the tests compare them at every step. C with the
 * vectors of GCC and Clang (native_vector.h) and OpenMP. Python passes raw addresses (native.py).
 *
 * A block of elements goes through a chain of short stages, each for all vectors of the block. One vector after the
 * other through the whole chain would wait for its own latencies. */

#include "native_noise.h"

#define EXPORT __attribute__((visibility("default")))

enum { CHUNK = 1 << 12 };             /* what a thread takes at least */
enum { PARALLEL_FROM = 4 * CHUNK };   /* elements below which waking the other threads costs more than it saves */
enum { STREAM_FROM = 1 << 22 };       /* elements above which a copy does not stay in the cache anyway */

/* A key, or what is folded into the key of a whole draw to make one (core/noise.py's fold_in). */
typedef struct {
    uint64_t key;
    const uint64_t *draw;   /* or NULL */
} Key;

INLINE uint64_t key_of(Key k) { return k.draw ? mix((*k.draw ^ k.key) + GOLDEN) : k.key; }

/* ---- line 2: a sample ---- */

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
INLINE void draw_block(float *param, const float *mean, const float *hess, Words counter, Scale s)
{
    Vec noise[TOGETHER], std[TOGETHER];
    Hashed hashed;
    EACH(k, TOGETHER) {
        hash(&hashed, k, counter);
        std[k] = s.scale / root(at_least(load(hess, k) + s.decay, s.lowest));
    }
    box_muller(noise, &hashed);
    EACH(k, TOGETHER) store(param, k, load(mean, k) + std[k] * noise[k]);
}

INLINE void copy_block(float *to, const float *from, int past_cache)
{
    if (past_cache && (uintptr_t)to % sizeof(Vec) == 0)
        EACH(k, TOGETHER) stream(to, k, load(from, k));
    else
        memcpy(to, from, BLOCK * sizeof *to);
}

static int sample_span(const Draw *t, Scale s, int64_t start, int64_t stop, int past_cache)
{
    const uint64_t key = key_of(t->key);
    for (; start + BLOCK <= stop; start += BLOCK) {
        if (t->kept)
            copy_block(t->kept + start, t->mean + start, past_cache);
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

static int draw_span(const void *task, int64_t start, int64_t stop, int past_cache)
{
    const Draw t = *(const Draw *)task;
    return sample_span(&t, *t.scale, start, stop, past_cache);
}

/* The sample comes out: the mean is copied back, or the noise subtracted. */
static int restore_span(const void *task, int64_t start, int64_t stop, int past_cache)
{
    Draw t = *(const Draw *)task;
    Scale s = *t.scale;
    if (!t.kept) {
        s.scale = -s.scale;
        return sample_span(&t, s, start, stop, past_cache);
    }
    for (; start + BLOCK <= stop; start += BLOCK)
        copy_block(t.param + start, t.kept + start, past_cache);
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

/* Line 3: hhat = ghat epsilon / sigma of one sample, or ghat^2, or what the caller has. */
INLINE void estimate_block(Vec *estimate, int approximation, const Block *b, Words counter, const Hyper *s)
{
    if (approximation == REPARAM) {
        Vec noise[TOGETHER];
        Hashed hashed;
        EACH(k, TOGETHER) {
            hash(&hashed, k, counter);
            Vec precision = at_least(load(b->hess, k) + s->noise_decay, s->noise_lowest);
            estimate[k] = root(precision) * s->noise_scale * load(b->grad, k);
        }
        box_muller(noise, &hashed);
        EACH(k, TOGETHER) estimate[k] *= noise[k];
    } else if (approximation == GIVEN) {
        EACH(k, TOGETHER) estimate[k] = load(b->estimate, k);
    } else {
        EACH(k, TOGETHER) {
            Vec grad = load(b->grad, k) * s->grad_factor;
            estimate[k] = grad * grad;
        }
    }
    EACH(k, TOGETHER) estimate[k] = clamp(estimate[k], -s->largest, s->largest);
}

INLINE void step_block(int approximation, const Block *b, Words counter, const Hyper *s)
{
    const Hyper c = *s;
    Vec d[TOGETHER], g[TOGETHER], h[TOGETHER];
    estimate_block(d, approximation, b, counter, s);
    /* h + d (1 + x/2) with d = (1 - beta2)(hhat - h) and x = d / (h + delta): +inf at worst, never NaN. */
    EACH(k, TOGETHER) {
        h[k] = load(b->hess, k);
        d[k] = (d[k] - h[k]) * c.hess_weight;
    }
    EACH(k, TOGETHER) {
        Vec relative = d[k] / at_least(h[k] + c.decay, c.lowest);
        h[k] = clamp(h[k] + d[k] * (1.0f + 0.5f * relative), c.lowest_hess, c.largest);
        store(b->hess, k, h[k]);
    }
    EACH(k, TOGETHER) {
        g[k] = c.beta1 * load(b->momentum, k) + c.grad_weight * load(b->grad, k);
        store(b->momentum, k, g[k]);
    }
    EACH(k, TOGETHER) {
        Vec m = load(b->mean, k);
        Vec direction = g[k] * c.debias + c.decay * (m - load(b->prior_mean, k));
        direction = clamp(direction / at_least(h[k] + c.decay, c.lowest), -c.clip_radius, c.clip_radius);
        store(b->mean, k, clamp(m - c.lr * direction, -c.largest_mean, c.largest_mean));
    }
}

INLINE void steps(int approximation, const Step *task, int64_t start, int64_t stop)
{
    const Step t = *task;
    const Hyper hyper = *t.hyper;
    const uint64_t key = key_of(t.key);
    float everywhere[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        everywhere[i] = hyper.prior_mean;
    for (; start + BLOCK <= stop; start += BLOCK) {
        Block b = {t.mean + start, t.momentum + start, t.hess + start, t.grad + start,
                   t.estimate ? t.estimate + start : NULL, t.prior_mean ? t.prior_mean + start : everywhere};
        step_block(approximation, &b, counter_at(key, start), &hyper);
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
        step_block(approximation, &b, counter_at(key, start), &hyper);
        memcpy(t.mean + start, mean, bytes);
        memcpy(t.momentum + start, momentum, bytes);
        memcpy(t.hess + start, hess, bytes);
    }
}

/* What is known when the loop is compiled need not be asked in it. */
static int step_span(const void *task, int64_t start, int64_t stop, int past_cache)
{
    const Step *t = task;
    (void)past_cache;
    switch (t->hyper->approximation) {
    case REPARAM:
        steps(REPARAM, t, start, stop);
        break;
    case SQUARED_GRADIENT:
        steps(SQUARED_GRADIENT, t, start, stop);
        break;
    default:
        steps(GIVEN, t, start, stop);
    }
    return 1;
}

/* ---- several samples in a step: running means of ghat and hhat ---- */

typedef struct {
    int64_t size;
    const float *grad;
    float *grad_mean;       /* NULL where only hhat is wanted */
    float *captured;        /* receives the new mean gradient too, or NULL */
    float *estimate_mean;
    const float *hess;
    uint64_t key;
    const Hyper *hyper;     /* beta1 and grad_weight: the weights of the old mean and of the new value */
} Fold;

INLINE void fold_block(const float *grad, float *grad_mean, float *estimate_mean, const float *hess, Words counter,
                       const Hyper *s)
{
    const Block b = {NULL, NULL, (float *)hess, grad, NULL, NULL};
    Vec estimate[TOGETHER];
    if (s->approximation == REPARAM)
        estimate_block(estimate, REPARAM, &b, counter, s);
    else
        estimate_block(estimate, SQUARED_GRADIENT, &b, counter, s);
    EACH(k, TOGETHER) {
        store(estimate_mean, k, s->beta1 * load(estimate_mean, k) + s->grad_weight * estimate[k]);
        store(grad_mean, k, s->beta1 * load(grad_mean, k) + s->grad_weight * load(grad, k));
    }
}

static int fold_span(const void *task, int64_t start, int64_t stop, int past_cache)
{
    const Fold t = *(const Fold *)task;
    float nowhere[BLOCK] = {0};
    for (; start + BLOCK <= stop; start += BLOCK) {
        float *grad_mean = t.grad_mean ? t.grad_mean + start : nowhere;
        fold_block(t.grad + start, grad_mean, t.estimate_mean + start, t.hess + start, counter_at(t.key, start), t.hyper);
        if (t.captured)
            copy_block(t.captured + start, grad_mean, past_cache);
    }
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
        if (t.captured)
            memcpy(t.captured + start, nowhere, bytes);
    }
    return 1;
}

/* ---- the look for NaN ---- */

typedef struct {
    int64_t size;
    const float *values;
} Check;

/* An exponent of ones means infinite or not a number. */
static int check_span(const void *task, int64_t start, int64_t stop, int past_cache)
{
    const float *values = ((const Check *)task)->values;
    const uint32_t ones = 0x7F800000u;
    uint32_t found = 0;
    (void)past_cache;
    #pragma omp simd reduction(| : found)
    for (int64_t i = start; i < stop; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & ones) == ones;
    }
    return !found;
}

/* ---- work on lists of tensors ---- */

typedef int (*Span)(const void *task, int64_t start, int64_t stop, int past_cache);

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
    int good = 1, past_cache = elements >= STREAM_FROM;
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
            good &= span(task, start, start + CHUNK < size ? start + CHUNK : size, past_cache);
        }
        end_stream();
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
