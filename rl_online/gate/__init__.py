"""Whether a checkpoint has proved itself: a decision on scores that are already measured.

The candidate and each baseline (the serving checkpoint, the first one) answered the same problems of one suite or
several. It passes where on every part of every suite the lower one-sided 95 % bound of the paired difference lies above
minus the margin: it may be no better, but it is shown not to be worse by more than the margin. The first checkpoint is
among the baselines so that small losses cannot add up. That every part must pass needs no correction: passing all is
harder than passing one. Where one of several is enough to say something (better on a target, certainly worse), Holm
keeps the false alarm rate over all suites together. Guards are side effects with a limit of their own: longer answers,
say. A judge has a vote only where a limit asks for it and the judge is healthy.

    evidence    what was measured                 limits    what counts as proof
    parts       which problems together           findings  one part against one baseline
    guards      side effects                      reach     what a suite can see at all
    forgetting  general text, against the base    votes     the judge's word
    decision    promote, canary, extend, hold, roll back

Pure: no database, no clock, no model. Not here: measuring (evals) and moving an alias (rl_online.services).
"""
