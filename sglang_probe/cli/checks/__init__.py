"""What `sglang-probe doctor` looks at: facts from inside the interpreter that would run SGLang, and judges of them."""
