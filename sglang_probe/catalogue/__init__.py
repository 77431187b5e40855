"""The catalogue of homes: where each role lives in SGLang's releases. Data and look-up, without SGLang."""
