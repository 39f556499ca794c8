/* As much of a libuct as the launcher reads: the modules that it would load. */
__attribute__((visibility("default"))) const char *other_uct_modules(void)
{
    return OTHER_UCT_MODULES;
}
