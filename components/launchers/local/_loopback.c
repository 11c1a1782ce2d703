/* Keeps other users from connecting to local training processes, into which it is loaded first (LD_PRELOAD).
 *
 * TensorFlow's servers run what anybody who reaches them asks for, and have no settings for where to listen or whom to trust:
 * https://github.com/tensorflow/tensorflow/blob/v2.16.2/tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc
 *
 * - A TCP socket that would listen on every interface of the machine listens on loopback only.
 * - A connection is accepted only if, according to the kernel (sock_diag(7)), the socket at its other end belongs to this user
 *   on this machine. All others are closed before a byte is read, even if the kernel does not answer. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* One end of a TCP connection. IPv4 is mapped into IPv6, so that a socket for both versions compares equal. */
struct end {
  unsigned char host[16];
  in_port_t port; /* network byte order */
};

static int is_mapped(const unsigned char *host) { return !memcmp(host, mapped_prefix, sizeof mapped_prefix); }

static int is_inet(const struct sockaddr_storage *name) {
  return name->ss_family == AF_INET || name->ss_family == AF_INET6;
}

static struct end as_end(const struct sockaddr_storage *name) {
  struct end end;
  if (name->ss_family == AF_INET) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)name;
    memcpy(end.host, mapped_prefix, sizeof mapped_prefix);
    memcpy(end.host + sizeof mapped_prefix, &v4->sin_addr, 4);
    end.port = v4->sin_port;
  } else {
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)name;
    memcpy(end.host, &v6->sin6_addr, sizeof end.host);
    end.port = v6->sin6_port;
  }
  return end;
}

/* Asks the kernel for the TCP socket that is bound to `local` and connected to `remote`.
 *
 * Returns 0 with the answer in `found`; the kernel's error, negative, such as -ENOENT if there is no such socket; or 1 if the
 * kernel could not be asked. */
static int find_socket(const struct end *local, const struct end *remote, struct inet_diag_msg *found) {
  struct {
    struct nlmsghdr header;
    struct inet_diag_req_v2 body;
  } request;
  union {
    struct nlmsghdr header;
    char bytes[1024];
  } answer;
  struct sockaddr_nl kernel;
  int v4 = is_mapped(local->host) && is_mapped(remote->host), result = 1;
  ssize_t size;
  int netlink = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

  if (netlink < 0) return 1;
  memset(&kernel, 0, sizeof kernel);
  kernel.nl_family = AF_NETLINK;
  memset(&request, 0, sizeof request);
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = v4 ? AF_INET : AF_INET6;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.id.idiag_sport = local->port;
  request.body.id.idiag_dport = remote->port;
  memcpy(request.body.id.idiag_src, local->host + (v4 ? 12 : 0), v4 ? 4 : 16);
  memcpy(request.body.id.idiag_dst, remote->host + (v4 ? 12 : 0), v4 ? 4 : 16);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  /* The kernel has queued its answer by the time that sendto returns. */
  if (sendto(netlink, &request, sizeof request, 0, (struct sockaddr *)&kernel, sizeof kernel) == sizeof request) {
    size = recv(netlink, &answer, sizeof answer, MSG_DONTWAIT);
    if (size >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)) && answer.header.nlmsg_type == NLMSG_ERROR) {
      result = ((struct nlmsgerr *)NLMSG_DATA(&answer.header))->error;
      if (result >= 0) result = 1;
    } else if (size >= (ssize_t)NLMSG_LENGTH(sizeof *found) && answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY) {
      memcpy(found, NLMSG_DATA(&answer.header), sizeof *found);
      result = 0;
    }
  }
  close(netlink);
  return result;
}

/* Reads one end of a socket from the kernel's answer. */
static struct end answered_end(const struct inet_diag_msg *found, const __be32 *host, __be16 port) {
  struct end end;
  if (found->idiag_family == AF_INET) {
    memcpy(end.host, mapped_prefix, sizeof mapped_prefix);
    memcpy(end.host + sizeof mapped_prefix, host, 4);
  } else {
    memcpy(end.host, host, sizeof end.host);
  }
  end.port = port;
  return end;
}

static int same(struct end one, struct end other) {
  return one.port == other.port && !memcmp(one.host, other.host, sizeof one.host);
}

/* Returns 1 if a user id from the kernel is certainly that of this process. In a user namespace, the kernel reports all users
 * that the namespace does not know by one id (/proc/sys/kernel/overflowuid): a process with that id itself could not tell
 * them from its owner. */
static int is_own_id(uid_t uid) {
  char text[64] = "";
  unsigned long overflow = 65534;
  int file;

  if (uid != geteuid()) return 0;
  file = open("/proc/sys/kernel/overflowuid", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    if (read(file, text, sizeof text - 1) > 0) overflow = strtoul(text, NULL, 10);
    close(file);
  }
  if (uid != overflow) return 1;
  memset(text, 0, sizeof text);
  file = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
  close(file);
  char *next = text;
  return strtoul(next, &next, 10) == 0 && strtoul(next, &next, 10) == 0 && strtoul(next, &next, 10) == 4294967295UL;
}

/* 0 if the kernel answers no questions about sockets. Every connection is accepted then, as otherwise none could be, and the
 * Python side warns that other users can connect. Asked once, before any server listens. */
static int kernel_answers;

__attribute__((constructor)) static void ask_kernel_once(void) {
  struct end nowhere = {{0}, 0};
  struct inet_diag_msg found;
  memcpy(nowhere.host, mapped_prefix, sizeof mapped_prefix);
  kernel_answers = find_socket(&nowhere, &nowhere, &found) == -ENOENT;
}

static int is_welcome(int fd) {
  struct sockaddr_storage name;
  struct inet_diag_msg found;
  struct end here, there;
  socklen_t size = sizeof name;

  if (!kernel_answers) return 1;
  if (getsockname(fd, (struct sockaddr *)&name, &size)) return 0;
  if (!is_inet(&name)) return 1; /* a Unix socket: the permissions of its folder decide */
  here = as_end(&name);
  size = sizeof name;
  if (getpeername(fd, (struct sockaddr *)&name, &size) || !is_inet(&name)) return 0;
  there = as_end(&name);
  if (find_socket(&there, &here, &found)) return 0;
  /* If no socket is connected, the kernel answers with one that listens at `there`, which may belong to another user. */
  if (!same(answered_end(&found, found.id.idiag_src, found.id.idiag_sport), there)) return 0;
  if (!same(answered_end(&found, found.id.idiag_dst, found.id.idiag_dport), here)) return 0;
  /* A socket that its process has closed has no inode, and the user id of root. */
  return found.idiag_inode != 0 && is_own_id(found.idiag_uid);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
  static int (*real_accept4)(int, struct sockaddr *, socklen_t *, int);
  socklen_t room = length ? *length : 0;

  if (!real_accept4) *(void **)&real_accept4 = dlsym(RTLD_NEXT, "accept4");
  for (;;) {
    int accepted = real_accept4(fd, address, length, flags);
    if (accepted < 0 || is_welcome(accepted)) return accepted;
    close(accepted); /* wait for the next, as if there had been no connection */
    if (length) *length = room;
  }
}

int accept(int fd, struct sockaddr *address, socklen_t *length) { return accept4(fd, address, length, 0); }

int bind(int fd, const struct sockaddr *address, socklen_t length) {
  static int (*real_bind)(int, const struct sockaddr *, socklen_t);
  static const unsigned char any_v4[4] = {0, 0, 0, 0}, loopback_v4[4] = {127, 0, 0, 1};
  struct sockaddr_storage own;
  int type = 0, v6only = 0;
  socklen_t size = sizeof type;

  if (!real_bind) *(void **)&real_bind = dlsym(RTLD_NEXT, "bind");
  if (!address || length > sizeof own || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_STREAM)
    return real_bind(fd, address, length);
  memset(&own, 0, sizeof own);
  memcpy(&own, address, length);
  if (own.ss_family == AF_INET) {
    struct in_addr *host = &((struct sockaddr_in *)&own)->sin_addr;
    if (host->s_addr == htonl(INADDR_ANY)) host->s_addr = htonl(INADDR_LOOPBACK);
  } else if (own.ss_family == AF_INET6) {
    unsigned char *host = ((struct sockaddr_in6 *)&own)->sin6_addr.s6_addr;
    size = sizeof v6only;
    getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &size);
    if (is_mapped(host) && !memcmp(host + 12, any_v4, 4)) {
      memcpy(host + 12, loopback_v4, 4);
    } else if (IN6_IS_ADDR_UNSPECIFIED((struct in6_addr *)host)) {
      memcpy(host, &in6addr_loopback, 16);
      if (!v6only) { /* a socket for both versions; addresses of the cluster are 127.0.0.1 */
        memcpy(host, mapped_prefix, sizeof mapped_prefix);
        memcpy(host + 12, loopback_v4, 4);
      }
    }
  }
  return real_bind(fd, (struct sockaddr *)&own, length);
}

int listen(int fd, int backlog) {
  static int (*real_listen)(int, int);
  struct sockaddr_storage name;
  socklen_t size = sizeof name;

  if (!real_listen) *(void **)&real_listen = dlsym(RTLD_NEXT, "listen");
  /* A socket that was never bound would get a port on every interface. */
  if (!getsockname(fd, (struct sockaddr *)&name, &size) && is_inet(&name) && as_end(&name).port == 0 &&
      bind(fd, (struct sockaddr *)&name, size))
    return -1;
  return real_listen(fd, backlog);
}
