"""Reports: a page with figures from the folders of runs. The only place that draws."""

from varlearn.report.figures import curves, entropies, gallery, reliability
from varlearn.report.style import save, svg
from varlearn.report.write import write_report

__all__ = ["curves", "entropies", "gallery", "reliability", "save", "svg", "write_report"]
