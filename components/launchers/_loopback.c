/* Loaded before all else into local training processes (LD_PRELOAD): what would listen on every interface of the machine
 * listens on loopback only. TensorFlow's servers take orders from whoever reaches them and cannot be told where to listen:
 * https://github.com/tensorflow/tensorflow/blob/v2.16.2/tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int bind(int fd, const struct sockaddr *address, socklen_t length) {
  static int (*real_bind)(int, const struct sockaddr *, socklen_t);
  struct sockaddr_storage own;
  int type = 0, v6only = 0;
  socklen_t size = sizeof type;

  if (!real_bind) real_bind = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "bind");
  if (length > sizeof own || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_STREAM)
    return real_bind(fd, address, length);
  memcpy(&own, address, length);
  if (own.ss_family == AF_INET) {
    struct in_addr *host = &((struct sockaddr_in *)&own)->sin_addr;
    if (host->s_addr == htonl(INADDR_ANY)) host->s_addr = htonl(INADDR_LOOPBACK);
  } else if (own.ss_family == AF_INET6) {
    struct in6_addr *host = &((struct sockaddr_in6 *)&own)->sin6_addr;
    size = sizeof v6only;
    getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &size);
    if (IN6_IS_ADDR_UNSPECIFIED(host)) {
      *host = in6addr_loopback;
      if (!v6only) { /* a socket for both versions; addresses of the cluster are 127.0.0.1 */
        static const unsigned char mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
        memcpy(host->s6_addr, mapped, sizeof mapped);
      }
    }
  }
  return real_bind(fd, (struct sockaddr *)&own, length);
}
