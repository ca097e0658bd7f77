"""IVON inside training frameworks: one thin module each, which imports its framework when it is used."""
