/* tier.h as a C program sees it: compiles as C11 with pedantic warnings, and answers without a daemon. */
#include <stdio.h>
#include <string.h>

#include <tier/tier.h>

int main(void) {
  tier_connect_options options = TIER_CONNECT_OPTIONS_INIT;
  tier_copy_options copy = TIER_COPY_OPTIONS_INIT;
  tier_client* client = NULL;
  options.socket = "/nonexistent/tierd.sock";
  if (copy.whole != 1 || copy.struct_size != sizeof copy) return 1;
  if (tier_connect(&options, &client) != TIER_NOT_FOUND || client != NULL) return 2;
  if (strstr(tier_last_error(), "/nonexistent/tierd.sock") == NULL) return 3;
  if (strcmp(tier_code_name(TIER_NOT_FOUND), "NOT_FOUND") != 0) return 4;
  printf("libtier %s: %s\n", tier_version(), tier_last_error());
  return 0;
}
