"""Plain transcriptions that the library is compared with."""
