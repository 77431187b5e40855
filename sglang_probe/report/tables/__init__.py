"""Everything that is known of runs as tables for SQL, column by column: Parquet files, a DuckDB database."""
