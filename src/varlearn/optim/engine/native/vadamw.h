/* Variational AdamW: AdamW's step. Twin of core/vadamw.py. A row of the table has the form of IVON's. */

typedef struct {
    float grad_factor;     /* of the gradient in the first moment: loss scale, sign, clipping */
    float raw_factor;      /* of the gradient in the second moment, which is not clipped */
    float grad_weight;     /* 1 - beta1 */
    float beta2;
    float square_weight;   /* 1 - beta2 */
    float keep;            /* 1 - lr * weight_decay */
    float step_size;       /* lr / (1 - beta1^t) */
    float debias;          /* 1 / sqrt(1 - beta2^t) */
    float eps;
} VadamwHyper;

typedef struct {
    int64_t size;
    float *param;         /* receives the new mean */
    const float *mean;    /* the old mean: the parameter itself, or a copy while the parameter is a sample */
    float *exp_avg, *exp_avg_sq;
    const float *grad;
    const float *unused[2];
    Key key;              /* of the sample; a step needs no noise */
    const VadamwHyper *hyper;
} VadamwStep;

INLINE void vadamw_block(float *param, const float *mean, float *exp_avg, float *exp_avg_sq, const float *grad,
                         int past_cache, const VadamwHyper *s)
{
    const VadamwHyper c = *s;
    Vec m[TOGETHER], v[TOGETHER];
    EACH(k, TOGETHER) {
        Vec g = load(grad, k), raw = g * c.raw_factor;
        m[k] = load(exp_avg, k);
        m[k] += c.grad_weight * (g * c.grad_factor - m[k]);
        v[k] = c.beta2 * load(exp_avg_sq, k) + c.square_weight * raw * raw;
        store(exp_avg, k, m[k]);
        store(exp_avg_sq, k, v[k]);
    }
    EACH(k, TOGETHER) v[k] = root(v[k]) * c.debias + c.eps;
    EACH(k, TOGETHER) put(param, k, c.keep * load(mean, k) - c.step_size * (m[k] / v[k]), past_cache);
}

static int vadamw_step_span(const void *task, int64_t start, int64_t stop, int past_cache)
{
    const VadamwStep t = *(const VadamwStep *)task;
    past_cache = past_cache && t.param != t.mean && (uintptr_t)t.param % sizeof(Vec) == 0;
    for (; start + BLOCK <= stop; start += BLOCK)
        vadamw_block(t.param + start, t.mean + start, t.exp_avg + start, t.exp_avg_sq + start, t.grad + start, past_cache,
                     t.hyper);
    if (start < stop) {
        float mean[BLOCK] = {0}, exp_avg[BLOCK] = {0}, exp_avg_sq[BLOCK] = {0}, grad[BLOCK] = {0};
        size_t bytes = (size_t)(stop - start) * sizeof(float);
        memcpy(mean, t.mean + start, bytes);
        memcpy(exp_avg, t.exp_avg + start, bytes);
        memcpy(exp_avg_sq, t.exp_avg_sq + start, bytes);
        memcpy(grad, t.grad + start, bytes);
        vadamw_block(mean, mean, exp_avg, exp_avg_sq, grad, 0, t.hyper);
        memcpy(t.param + start, mean, bytes);
        memcpy(t.exp_avg + start, exp_avg, bytes);
        memcpy(t.exp_avg_sq + start, exp_avg_sq, bytes);
    }
    return 1;
}
