"""Metrics for Prometheus, made from the table of fields; the only place that imports prometheus_client."""
