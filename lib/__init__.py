"""Models, trainers and measurements of the workbook; `python -m lib --help` lists the commands."""
