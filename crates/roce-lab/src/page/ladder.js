// ladder
