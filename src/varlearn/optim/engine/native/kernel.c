/* The native engine: samples and steps for lists of float32 tensors, one pass over memory for each call.
 *
 * Twin of core/noise.py (the numbers) and of the rules in core/; the tests compare them at every step. C with the vectors
 * of GCC and Clang (vector.h) and OpenMP. Python passes raw addresses (native_plan.py). Each rule has a header.
 *
 * A block of elements goes through a chain of short stages, each for all vectors of the block. One vector after the
 * other through the whole chain would wait for its own latencies. */

#include "noise.h"

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
    const float *mean;   /* the parameter itself, or a copy */
    float *kept;         /* receives the mean where it is the parameter itself, or NULL */
    const float *hess;
    Key key;
    const Scale *scale;
} Draw;

/* The divider works on sigma while the other units hash: apart, a sample takes 1.1 times as long. */
INLINE void draw_block(float *param, const float *mean, const float *hess, int past_cache, Words counter, Scale s)
{
    Vec noise[TOGETHER], std[TOGETHER];
    Hashed hashed;
    EACH(k, TOGETHER) {
        hash(&hashed, k, counter);
        std[k] = s.scale / root(at_least(load(hess, k) + s.decay, s.lowest));
    }
    box_muller(noise, &hashed);
    EACH(k, TOGETHER) put(param, k, load(mean, k) + std[k] * noise[k], past_cache);
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
    if (past_cache && t->param != t->mean && (uintptr_t)t->param % sizeof(Vec) == 0)
        for (; start + BLOCK <= stop; start += BLOCK)
            draw_block(t->param + start, t->mean + start, t->hess + start, 1, counter_at(key, start), s);
    for (; start + BLOCK <= stop; start += BLOCK) {
        if (t->kept)
            copy_block(t->kept + start, t->mean + start, past_cache);
        draw_block(t->param + start, t->mean + start, t->hess + start, 0, counter_at(key, start), s);
    }
    if (start < stop) {
        float mean[BLOCK] = {0}, hess[BLOCK] = {0};
        size_t bytes = (size_t)(stop - start) * sizeof(float);
        memcpy(mean, t->mean + start, bytes);
        memcpy(hess, t->hess + start, bytes);
        if (t->kept)
            memcpy(t->kept + start, mean, bytes);
        draw_block(mean, mean, hess, 0, counter_at(key, start), s);
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

#include "ivon.h"
#include "vadamw.h"

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
 *
 * `next`: a sample to draw of each chunk when its task is done, while it is in the cache. It has a row for every task; a
 * task of size 0 is left out, its sample is not.
 * Returns whether every chunk returned 1. */
static int run(Span span, const char *tasks, size_t width, const Draw *next, int64_t count, int threads)
{
    const char *sizes = next ? (const char *)next : tasks;
    const size_t stride = next ? sizeof *next : width;
    int64_t chunks = 0, elements = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t size = *(const int64_t *)(sizes + k * stride);
        chunks += (size + CHUNK - 1) / CHUNK;
        elements += size;
    }
    int good = 1, past_cache = elements >= STREAM_FROM;
    #pragma omp parallel num_threads(threads) if (elements >= PARALLEL_FROM) reduction(& : good)
    {
        int64_t k = 0, first = 0;
        #pragma omp for schedule(monotonic : guided)
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            int64_t size;
            while (size = *(const int64_t *)(sizes + k * stride), (chunk - first) * CHUNK >= size) {
                first += (size + CHUNK - 1) / CHUNK;
                k++;
            }
            int64_t start = (chunk - first) * CHUNK, stop = start + CHUNK < size ? start + CHUNK : size;
            const char *task = tasks + k * width;
            if (*(const int64_t *)task)
                good &= span(task, start, stop, past_cache);
            if (next)
                draw_span(next + k, start, stop, past_cache);
        }
        end_stream();
    }
    return good;
}

/* `done` is turned over after the last write, if all went well: a caller that was interrupted between a call and the
 * next line knows whether the call was made. A step that draws the next sample leaves a sample where it found one. */
#define KERNEL(name, Task)                                                                                  \
    EXPORT void varlearn_##name(const Task *tasks, const Draw *next, int64_t count, int threads, int *done) \
    {                                                                                                       \
        int good = run(name##_span, (const char *)tasks, sizeof *tasks, next, count, threads);              \
        if (done)                                                                                           \
            *done ^= good;                                                                                  \
    }

KERNEL(draw, Draw)
KERNEL(restore, Draw)
KERNEL(check, Check)
KERNEL(ivon_step, IvonStep)
KERNEL(ivon_fold, IvonFold)
KERNEL(vadamw_step, VadamwStep)
