"""Standard normals in a Triton program: SplitMix64 of a counter, then Box and Muller. Twin of native/noise.h.

Only additions, products, and square roots that are rounded as IEEE 754 says, compiled without fusing a product and a
sum. So the numbers have the same bits on every device and in Triton's interpreter.
"""

# pyright: reportMissingParameterType=false, reportOperatorIssue=false, reportArgumentType=false

import triton
import triton.language as tl

GOLDEN: tl.constexpr = tl.constexpr(0x9E3779B97F4A7C15)
MIX1: tl.constexpr = tl.constexpr(0xBF58476D1CE4E5B9)
MIX2: tl.constexpr = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def mix(word):
    """SplitMix64's finalizer."""
    word = (word ^ (word >> 30)) * MIX1
    word = (word ^ (word >> 27)) * MIX2
    return word ^ (word >> 31)


@triton.jit
def fold_in(key, part):
    """`core.noise.fold_in`: the key of one more coordinate."""
    return mix((key ^ part) + GOLDEN)


@triton.jit
def energy(upper):
    """-log u of u = (upper + 1/2) 2^-31 = 2^e m, 2/3 <= m < 4/3: -e log 2 - log m. See `energy` of noise.h."""
    # 0x3F2AAAAB is 2/3; the exponent of 2^31 is subtracted with it.
    bits = (upper.to(tl.float32) + 0.5).to(tl.int32, bitcast=True) - (0x3F2AAAAB + (31 << 23))
    e = (bits & -0x00800000).to(tl.float32)
    f = ((bits & 0x007FFFFF) + 0x3F2AAAAB).to(tl.float32, bitcast=True) - 1.0
    f2 = f * f
    even = 0.499995131 + f2 * (0.250277695 + f2 * (0.161351293 + f2 * 0.16614291))
    odd = -0.333378774 + f2 * (-0.197885357 + f2 * -0.171694041)
    return f2 * (even + f * odd) - (f + e * (0.693147182 * 1.1920928955078125e-07))


@triton.jit
def normals(key, first_pair, PAIRS: tl.constexpr):
    """The normals number 2 first_pair and following of a key, 2 PAIRS of them."""
    pair = (first_pair + tl.arange(0, PAIRS)).to(tl.uint64)
    word = mix(key + (pair + 1) * GOLDEN)
    r = tl.sqrt_rn(energy((word >> 33).to(tl.int32)))
    # The angle is a half turn times x, -1 <= x < 1, plus a whole half turn where the sign is set.
    angle = word.to(tl.uint32).to(tl.int32, bitcast=True)
    twice = angle + angle
    r = (r.to(tl.int32, bitcast=True) | ((angle ^ twice) & -0x80000000)).to(tl.float32, bitcast=True)
    x = twice.to(tl.float32) * 4.656612873077393e-10
    z = x * x
    c = 1.4142135 + z * (-1.74471275 + z * (0.358716323 + z * (-0.0294306711 + z * 0.00121366454)))
    s = 2.2214414 + z * (-0.913530144 + z * (0.11269653 + z * (-0.00660752808 + z * 0.000213292479)))
    return tl.interleave(r * c, r * (x * s))
