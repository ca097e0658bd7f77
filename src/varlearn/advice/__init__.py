"""Advice in words: what is wrong with a run, why, and the one change to make.

Every layer gathers the facts it knows and shows the findings in its own way. This package imports neither torch nor
another part of varlearn.
"""

from varlearn.advice.finding import Finding, Severity
from varlearn.advice.judging import findings
from varlearn.advice.run_facts import RunFacts

__all__ = ["Finding", "RunFacts", "Severity", "findings"]
