"""The benchmark: egress measured beside the tools people would use instead."""
