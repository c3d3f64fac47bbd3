"""Which prompt next: what the answers and the learner showed in, rows out.

verdicts, feedback -> monitor -> scores -> table (category) -> pool (prompt of the category) -> row
                                                    epochs (prompts not visited for long) ----^
"""
