"""Grafana: dashboards built from Python, and what provisions them."""
