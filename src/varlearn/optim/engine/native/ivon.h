/* IVON: lines 3 to 7 of Algorithm 1, and the averages over several samples. Twin of core/update.py. */

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
} IvonHyper;

typedef struct {
    int64_t size;
    float *param;              /* receives the new mean */
    const float *mean;         /* the old mean: the parameter itself, or a copy while the parameter is a sample */
    float *momentum, *hess;
    const float *grad;
    const float *estimate;     /* NULL unless GIVEN */
    const float *prior_mean;   /* NULL where it is the number in `hyper` */
    Key key;
    const IvonHyper *hyper;
} IvonStep;

typedef struct {
    float *param;
    const float *mean;
    float *momentum, *hess;
    const float *grad, *estimate, *prior_mean;
} Block;

/* Line 3: hhat = ghat epsilon / sigma of one sample, or ghat^2, or what the caller has. */
INLINE void estimate_block(Vec *estimate, int approximation, const Block *b, Words counter, const IvonHyper *s)
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

/* `past_cache`: the parameter holds a sample that is not read, so it need not be fetched before it is overwritten. */
INLINE void step_block(int approximation, int past_cache, const Block *b, Words counter, const IvonHyper *s)
{
    const IvonHyper c = *s;
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
        m = clamp(m - c.lr * direction, -c.largest_mean, c.largest_mean);
        put(b->param, k, m, past_cache);
    }
}

INLINE void steps(int approximation, int past_cache, const IvonStep *task, int64_t start, int64_t stop)
{
    const IvonStep t = *task;
    const IvonHyper hyper = *t.hyper;
    const uint64_t key = key_of(t.key);
    float everywhere[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        everywhere[i] = hyper.prior_mean;
    for (; start + BLOCK <= stop; start += BLOCK) {
        Block b = {t.param + start, t.mean + start, t.momentum + start, t.hess + start, t.grad + start,
                   t.estimate ? t.estimate + start : NULL, t.prior_mean ? t.prior_mean + start : everywhere};
        step_block(approximation, past_cache, &b, counter_at(key, start), &hyper);
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
        Block b = {mean, mean, momentum, hess, grad, estimate, everywhere};
        step_block(approximation, 0, &b, counter_at(key, start), &hyper);
        memcpy(t.param + start, mean, bytes);
        memcpy(t.momentum + start, momentum, bytes);
        memcpy(t.hess + start, hess, bytes);
    }
}

/* What is known when the loop is compiled need not be asked in it. */
static int ivon_step_span(const void *task, int64_t start, int64_t stop, int past_cache)
{
    const IvonStep *t = task;
    past_cache = past_cache && t->param != t->mean && (uintptr_t)t->param % sizeof(Vec) == 0;
    switch (t->hyper->approximation) {
    case REPARAM:
        if (past_cache)
            steps(REPARAM, 1, t, start, stop);
        else
            steps(REPARAM, 0, t, start, stop);
        break;
    case SQUARED_GRADIENT:
        steps(SQUARED_GRADIENT, 0, t, start, stop);
        break;
    default:
        steps(GIVEN, 0, t, start, stop);
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
    const IvonHyper *hyper;     /* beta1 and grad_weight: the weights of the old mean and of the new value */
} IvonFold;

INLINE void fold_block(const float *grad, float *grad_mean, float *estimate_mean, const float *hess, Words counter,
                       const IvonHyper *s)
{
    const Block b = {NULL, NULL, NULL, (float *)hess, grad, NULL, NULL};
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

static int ivon_fold_span(const void *task, int64_t start, int64_t stop, int past_cache)
{
    const IvonFold t = *(const IvonFold *)task;
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
