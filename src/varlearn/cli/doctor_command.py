"""`varlearn doctor`."""

from __future__ import annotations

import textwrap

from varlearn.cli.show import console


def doctor() -> int:
    """Look at devices, compiler, Triton and engines, and compare the kernels with the reference on every device."""
    from varlearn.cli.machine_checks import all_checks

    out, checks = console(), []
    width = max(30, min(out.width, 100) - 4)
    for check in all_checks():
        checks.append(check)
        sign = "✗" if check.is_broken else "!" if check.cure else "✓"
        out.print(f"{sign} {check.what}: {check.found}", markup=False)
        if check.cure:
            out.print(textwrap.indent(textwrap.fill(check.cure, width, break_on_hyphens=False), "    "), markup=False)
    broken = sum(check.is_broken for check in checks)
    advised = sum(bool(check.cure) for check in checks) - broken
    out.print(f"\n{len(checks)} checks: {broken} broken, {advised} with advice", markup=False)
    return 1 if broken else 0
