"""Configurations of those that record dumps: MindSpore's ``data_dump.json`` and msprobe's ``config.json``.

``mindspore`` and ``msprobe`` know every key and check a file, ``keys`` is what both share, ``json_lines`` reads JSON
with its lines, ``disk`` estimates what a dump will take. Nothing here opens a dump.
"""
