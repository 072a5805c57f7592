"""Figures for papers: charts of reports as PDF, SVG and PNG, drawn with matplotlib (extra ``figures``)."""
