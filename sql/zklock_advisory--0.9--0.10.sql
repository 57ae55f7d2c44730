\echo Use "ALTER EXTENSION zklock_advisory UPDATE" to load this file. \quit
